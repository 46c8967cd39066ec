"""When validation data are enough: models that interpolate, and the architecture above them. Oymak et al. 2021.

Importing this loads no torch.
"""
