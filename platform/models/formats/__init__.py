"""The formats of an exported model, a file each, which `export_format.FORMATS` declares."""
