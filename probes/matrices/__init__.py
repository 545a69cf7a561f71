"""Matrices in, numbers out: spectra, ranks, subspaces and modes, from the factors."""
