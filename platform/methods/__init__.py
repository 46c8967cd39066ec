"""One recipe per method."""
