"""`python -m tests.kills`: kill all of it, or what is named, so many times each; exit code 0 if all of it went on."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.kills.campaign import run
from tests.kills.campaigns import CAMPAIGNS, a_run, an_own_run


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    options.add_argument("names", nargs="*", help=f"of {', '.join(CAMPAIGNS)}; all if none is named")
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    a_run(), an_own_run()  # before anything is killed
    _import_all()
    failed = 0
    for name in chosen.names or CAMPAIGNS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            outcome = run(CAMPAIGNS[name], Path(folder), chosen.kills, chosen.seed)
        verdict = "all as uninterrupted" if not outcome.wrong else f"{len(outcome.wrong)} WRONG"
        seconds = time.monotonic() - began
        print(f"{name:20s} {outcome.kills} kills, {outcome.finished} runs: {verdict} ({seconds:.0f} s)", flush=True)
        for line in outcome.wrong:
            print(f"    {line}", flush=True)
        failed += len(outcome.wrong)
    return 1 if failed else 0


def _import_all() -> None:
    """What the work needs is imported before it is forked: a kill is to hit the work and not the imports."""
    import torch.utils.tensorboard.writer
    import wandb

    import models.__main__
    import probes.__main__
    import probes.measuring.measure
    import probes.monitor.sinks
    import probes.reporting.report

    _ = models, probes, torch, wandb


if __name__ == "__main__":
    sys.exit(main())
