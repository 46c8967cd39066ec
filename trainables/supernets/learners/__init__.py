"""What architecture optimizers make: how the parameters of a mixture learn."""
