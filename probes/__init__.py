"""Checkpoint Probes: when did what happen inside a training run, and how sure are we?

The mathematics takes arrays and returns values; every function here can be tried at a prompt in one line:

    >>> import numpy as np, probes
    >>> float(probes.effective_rank(np.diag([4, 2, 1, 0.5])).round(4))
    3.1171

Names are listed once, in `__init__.pyi`, and imported when they are first used: `probes --help` needs no torch.
"""

import importlib.util
import os
import sys

import lazy_loader


def _require_own_checkpoints() -> None:
    """Refuse to begin with somebody else's `checkpoints`: a folder or file of that name is what many trainers leave.

    It is looked for and not imported, which takes no time. Ours lies beside this package, wherever that is installed.
    """
    beside = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    expected = os.path.join(beside, "checkpoints")
    imported = sys.modules.get("checkpoints")
    spec = imported.__spec__ if imported else importlib.util.find_spec("checkpoints")
    places = [*(spec.submodule_search_locations or ()), spec.origin] if spec else [getattr(imported, "__file__", None)]
    found = next((place for place in places if place), None)
    if found is None or os.path.normcase(os.path.realpath(found)) != os.path.normcase(expected):
        raise ImportError(
            f"probes needs the package `checkpoints` that is installed with it, {expected}, but `import checkpoints` "
            f"finds {found or 'nothing'}. If that is yours, rename it or start Python in another directory, so that it "
            "does not come first on sys.path; else install checkpoint-probes again",
            name="checkpoints",
            path=found,
        )


_require_own_checkpoints()

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
