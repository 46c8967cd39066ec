"""Which trial comes next: Ray Tune searchers and the pure maths they run. Nothing here imports torch."""
