"""Where trials run: connecting to Ray, resources, pools of actors."""
