"""A run in, a tidy table out: every probe on every head of every checkpoint."""
