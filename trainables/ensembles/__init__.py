"""Ensembles of networks: measures, evaluation from cached predictions, selection, one module of all members."""
