"""The roof: `unmask VERB`, the only place that reads the environment."""
