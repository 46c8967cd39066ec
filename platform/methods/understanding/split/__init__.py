"""The study of validation sets: when they are enough. Oymak et al. 2021."""
