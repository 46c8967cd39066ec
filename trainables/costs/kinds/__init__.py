"""The costs that archray knows, a file each: `NAME_cost.py` holds NAME."""
