"""What is said of a monitor's budget: what the least costs as soon as it is known, what is left out, and the sum."""

import logging
from collections.abc import Mapping

from probes.monitor.budget import DEAR_FLOOR, FLOOR, UPDATES_TO_KNOW, Budget

logger = logging.getLogger("probes.monitor")

_HINT = "Monitor(..., background=True) measures beside the training; a larger budget= allows more"


def affords(budget: Budget, kind: str, step: int, floor: float = FLOOR, *, besides: float = 0.0) -> bool:
    """Whether there is time for it; the first time that there is not, this is said."""
    can = budget.affords(kind, step, floor, besides=besides)
    if not can and sum(budget.left_out.values()) == 1:
        logger.warning(
            "step %d: a %s is left out, to stay within %g %% of the training time; more will be, and they are summed "
            "up at the end. %s",
            step,
            kind,
            100 * budget.share,
            _HINT,
        )
    return can


def say_what_the_least_costs(budget: Budget, kind: str, floors: Mapping[str, float]) -> None:
    """To be called after `UPDATES_TO_KNOW` updates; floors are those of all that is measured."""
    seconds = budget.training / UPDATES_TO_KNOW
    share = budget.floor_share(floors, seconds)
    dear = [f"{one} {1e3 * budget.cost_of(one):.1f} ms more" for one in floors if one != kind]
    logger.log(
        logging.WARNING if share > budget.share else logging.INFO,
        "an update takes %.1f ms and a %s %.1f ms%s: at least one per factor %g in steps takes about %.1g %% of the "
        "first 1000 updates of this model, and less later; up to %g %% is used for more of them",
        1e3 * seconds,
        kind,
        1e3 * budget.cost_of(kind),
        f" (a {', a '.join(dear)}, once per factor {DEAR_FLOOR:g})" if dear else "",
        FLOOR,
        100 * share,
        100 * budget.share,
    )


def sum_up(budget: Budget, updates: int, worker_seconds: float, checkpoints: Budget | None) -> None:
    """What was done; and what was left out, which is not to be overlooked."""
    worker = f"; the worker took {worker_seconds:.1f} s of processor time" if worker_seconds else ""
    besides = f"; for checkpoints, {checkpoints}" if checkpoints else ""
    logger.info("monitored %d updates in %s%s%s", updates, budget, worker, besides)
    missing = [f"{count} of {count + budget.done[kind]} x {kind}" for kind, count in budget.left_out.items() if count]
    if missing:
        every = "Every series with values enough was looked at once more at the end. " if budget.last_looks else ""
        logger.warning(
            "left out to stay within %g %% of the training time: %s. %s%s",
            100 * budget.share,
            ", ".join(missing),
            every,
            _HINT,
        )
