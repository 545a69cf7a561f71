"""Checkpoint Probes: when did what happen inside a training run, and how sure are we?

The mathematics takes arrays and returns values; every function here can be tried at a prompt in one line:

    >>> import numpy as np, probes
    >>> float(probes.effective_rank(np.diag([4, 2, 1, 0.5])).round(4))
    3.1171

Names are listed once, in `__init__.pyi`, and imported when they are first used: `probes --help` needs no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
