"""Paper 002, Zhang, Frei & Bartlett: merged weights, and what happens away from the training distribution."""
