"""A found network as plain PyTorch: one file that reads like a model written by hand, and needs no archray."""
