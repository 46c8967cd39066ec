"""Searches for a set: several objectives, of which none can be bettered without another becoming worse."""
