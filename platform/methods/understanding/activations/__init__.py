"""The study of architecture parameters: how well alpha ranks activations. Roberts et al. 2022."""
