"""Relaxations by name: their settings, which make them. A file here is one; it is imported when it is asked for."""
