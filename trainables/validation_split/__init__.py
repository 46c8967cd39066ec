"""When validation data suffice: interpolating models and the architecture above them. Oymak et al. 2021. No torch."""
