"""The cluster on which trials run: connections to Ray, resources, and pools of actors."""
