"""The size of validation data: interpolating models and their architecture. Oymak et al. 2021. Imports no torch."""
