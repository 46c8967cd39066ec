"""What relaxations make: where the mixture of each step comes from, and what it learns from a batch."""
