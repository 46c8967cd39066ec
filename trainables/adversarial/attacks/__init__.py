"""The attacks, a file each; see `attack_registry`."""
