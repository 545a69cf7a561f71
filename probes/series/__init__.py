"""One number per step in, times out: slopes, autocorrelation, shapes of growth, transitions."""
