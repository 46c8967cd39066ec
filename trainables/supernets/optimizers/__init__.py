"""Architecture optimizers by name: their settings, which make them. A file here is one, imported when asked for."""
