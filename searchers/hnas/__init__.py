"""HNAS: the search over (mu, nu) and the objective that it tunes. Shu 2022, ch. 7."""
