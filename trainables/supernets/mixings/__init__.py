"""Where a supernet's mixture comes from in each step: gradients, rewards, posteriors, draws."""
