"""One number per step in, times out: slopes, autocorrelation, growth laws, transitions."""
