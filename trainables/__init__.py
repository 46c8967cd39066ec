"""The work of a trial: spaces, networks, data, training-free metrics, training loops, and their Tune trainables."""
