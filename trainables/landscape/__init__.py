"""The ground that training moves on: planes of the loss, the gradient's variance, and the bounds of linear cells."""
