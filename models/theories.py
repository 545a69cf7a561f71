"""The theory of a run, by its family: what `probes report RUN --theory models.theories:theory_of` lays over it."""

from collections.abc import Callable
from typing import Any

from checkpoints import Run
from models.depth_and_context import model as depth_and_context
from models.linear_icl import model as linear_icl
from models.merged_weights import model as merged_weights
from models.multi_head import model as multi_head
from models.multitask_sparse import model as multitask_sparse
from models.multitask_sparse.theory import FullFlow

THEORIES: dict[str, Callable[[Run], Any]] = {
    "linear-icl": lambda run: linear_icl.exact_theory(run.config, run.theory or {}),
    "multi-head": lambda run: multi_head.population_flow(run.config, run.theory or {}, run.checkpoint(run.steps[0])),
    "merged-weights": lambda run: merged_weights.merged_flow(
        run.config, run.theory or {}, run.checkpoint(run.steps[0])
    ),
    "depth-and-context": lambda run: depth_and_context.flow_of(run.config),
    "multitask-sparse": lambda run: multitask_sparse.flow_of(FullFlow, run.config, run.theory or {}),
}
"""By family, the flow that the run follows, from where it started and for the data it saw."""


def theory_of(run: Run) -> Any:
    """A `probes.theory.Theory` of this run; ValueError where its family has none, or none of its setting."""
    if run.family not in THEORIES:
        raise ValueError(f"run {run.name!r} is of family {run.family}: there is a theory of {', '.join(THEORIES)}")
    return THEORIES[run.family](run)
