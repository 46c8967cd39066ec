"""Two-layer networks that share weights and differ in their activation. Roberts et al. 2022. Imports no torch."""
