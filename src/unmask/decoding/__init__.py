"""Which positions to write in a step: rules, sampling, random streams, and the reference loop."""
