"""Tune trainables with their settings, and the workers of actors."""
