"""Trained models of a run, and their export: networks, ensembles, classifiers of feature maps."""
