"""The run folder: layout, manifest, tables. Independent of methods."""
