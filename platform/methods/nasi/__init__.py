"""nasi."""
