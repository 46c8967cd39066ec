"""The run folder: layout, manifest, tables. Knows no method."""
