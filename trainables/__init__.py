"""What a trial does: spaces, networks, data, training-free metrics, training loops, and their Tune trainables."""
