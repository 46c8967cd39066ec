"""What a run trained, as files that load elsewhere: networks, ensembles, feature maps' classifiers."""
