"""What NESBS is compared with: ensembles of one architecture, and ensembles selected from a trained pool (NES)."""
