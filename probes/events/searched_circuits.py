"""Which circuits of a run are searched if nobody says so: those of the heads, and other matrices where these are small.

Grokking shows in embeddings and feed-forward matrices. Their spectra cost more than those of the heads, which are
factored; where they would cost seconds for each checkpoint they are left out, and that is said.
"""

import math

from checkpoints import Run
from probes.circuits import default_circuits

ROLES = ("embed", "unembed", "mlp_in", "mlp_gate", "mlp_gate_in", "mlp_out")
"""Matrices that are no heads and are searched too."""

MOST_WORK = 3e9
"""Multiplications for the spectra of those at one checkpoint: about a second. Beyond, they must be asked for."""


def circuits_to_search(run: Run) -> tuple[list[str], list[str]]:
    """Their names, and what is left out for being large."""
    names = list(default_circuits(run))
    others = [name for name in ROLES if name in run.matrices and name not in names]
    if run.circuits is not None or not {"ov", "qk"} & set(names) or not others:
        return names, []
    stored = run.representative_checkpoint().stored
    tensors = [one for name in others for layer in run.matrices[name].tensors.values() for one in layer]
    work = sum(math.prod(stored[one].shape) * min(stored[one].shape[-2:]) for one in tensors)
    if work > MOST_WORK:
        return names, [
            f"{', '.join(others)} of {run.name} are large and were not measured: --circuits "
            f"{','.join([*names, *others])} does it"
        ]
    return names + others, []
