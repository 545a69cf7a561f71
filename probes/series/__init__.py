"""One number per step in, times out: slopes, autocorrelation, growth laws, transitions; and data sets with truth."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["calibration", "datasets"])
