"""The loss landscape: planes of the loss, the gradient's variance, and the bounds of linear cells."""
