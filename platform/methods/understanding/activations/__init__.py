"""The study of architecture parameters: what alpha says of the activations it weighs. Roberts et al. 2022."""
