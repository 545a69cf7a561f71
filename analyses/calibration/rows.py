"""From outcomes to the table that ships, `probes/series/calibration.csv`: a row for each kind of record.

`python -m analyses.calibration.rows` runs the panels alone (or takes them from checkpoints/runs/calibration, where they
were run before) and writes their rows anew, which is enough when only `find_events` was changed.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from analyses.calibration.judge import TRANSITIONS, Outcome, Rate, coverage, false_alarms, recall, timing_errors
from analyses.calibration.panels import PanelOutcome, level, power, run_panels
from probes.series import calibration
from probes.series.calibration import COLUMNS, release_of, rows

N_BANDS = ((20, 29), (30, 49), (50, 99), (100, 199), (200, 299), (300, 999), (1000, 2999), (3000, 1_000_000))
SHIPPED = Path(calibration.__file__).with_name("calibration.csv")
RHO_BANDS = ((0.0, 0.25), (0.25, 0.65), (0.65, 0.9))
SPACING = {
    "dense": "uniform",
    "2000 uniform": "uniform",
    "200 uniform": "uniform",
    "100 uniform": "uniform",
    "50 uniform": "uniform",
    "30 uniform": "uniform",
    "300 log-spaced": "log-spaced",
    "log50": "log-spaced",
    "log150": "log-spaced",
    "pythia": "mixed",
    "150 uniform": "uniform",
    "uniform": "uniform",
    "log-spaced": "log-spaced",
}
"""How each schedule of the campaign is sampled."""


def table_of_rows(outcomes: Sequence[Outcome], release: str) -> pd.DataFrame:
    """False alarms from the smooth drifts, everything else from the shapes in which something happens."""
    nothing = [o for o in outcomes if o.cell.startswith("level/")]
    something = [o for o in outcomes if o.cell.startswith(("truth/", "dips/"))]
    found = []
    for schedule in ("uniform", "log-spaced", "mixed"):
        for n_band in N_BANDS:
            for rho_band in RHO_BANDS:
                quiet = [o for o in nothing if _in(o, schedule, n_band, rho_band)]
                if all(o.refused for o in quiet):  # never looked at: there is nothing to be entitled to
                    continue
                eventful = [o for o in something if _in(o, schedule, n_band, rho_band)]
                bands = (schedule, n_band, rho_band)
                found += [_row(what, bands, quiet, eventful, release) for what in ("any", *TRANSITIONS)]
    return pd.DataFrame(found, columns=list(COLUMNS))


def rows_of_panels(outcomes: Sequence[PanelOutcome], release: str) -> pd.DataFrame:
    """One row for each schedule: the nulls of all kinds together, and the shared steps of all sizes."""
    found = []
    for schedule in dict.fromkeys(o.schedule for o in outcomes):
        here = [o for o in outcomes if o.schedule == schedule]
        alarms, seen = level(here), power(here)
        (n_low, n_high), spacing = next(band for band in N_BANDS if here[0].values <= band[1]), SPACING[schedule]
        errors = [abs(np.log(step / o.true_step)) for o in here if o.true_step and o.found for step in o.steps]
        near = [error for error in errors if error <= 0.25]
        found.append(
            {
                "id": f"panel/{spacing}/n{n_low}-{n_high}",
                "what": "panel",
                "schedule": spacing,
                "n_low": n_low,
                "n_high": n_high,
                "rho_low": 0.0,
                "rho_high": RHO_BANDS[-1][1],
                "series": alarms.of,
                **_numbers("false_alarm", alarms, "false_alarm_rate"),
                "transitions": seen.of,
                **_numbers("recall", seen, "recall"),
                **_numbers("coverage", Rate(0, 0), "coverage"),
                "timing_error": round(float(np.median(near)), 4) if near else float("nan"),
                "release": release,
            }
        )
    return pd.DataFrame(found, columns=list(COLUMNS))


def _in(outcome: Outcome, schedule: str, n: tuple[int, int], rho: tuple[float, float]) -> bool:
    """Mixed records are one band of n: there is one such schedule."""
    fits = SPACING[outcome.schedule] == schedule and n[0] <= outcome.values <= n[1]
    return fits and (rho[0] <= outcome.memory < rho[1] or outcome.memory == rho[1] == RHO_BANDS[-1][1])


def _row(
    what: str,
    bands: tuple[str, tuple[int, int], tuple[float, float]],
    quiet: Sequence[Outcome],
    eventful: Sequence[Outcome],
    release: str,
) -> dict:
    schedule, (n_low, n_high), (rho_low, rho_high) = bands
    kinds = TRANSITIONS if what == "any" else (what,)
    alarms = false_alarms(quiet, kinds)
    about = [o for o in eventful if any(truth.kind in kinds for truth in o.truths)]
    found = recall(about, kinds=kinds)
    covered = coverage(about) if what != "any" else coverage(eventful)
    errors = timing_errors(about)
    n_high_name = f"{n_high}" if n_high < N_BANDS[-1][1] else "more"
    return {
        "id": f"{what}/{schedule}/n{n_low}-{n_high_name}/rho{rho_low:g}-{rho_high:g}",
        "what": what,
        "schedule": schedule,
        "n_low": n_low,
        "n_high": n_high,
        "rho_low": rho_low,
        "rho_high": rho_high,
        "series": alarms.of,
        **_numbers("false_alarm", alarms, "false_alarm_rate"),
        "transitions": found.of,
        **_numbers("recall", found, "recall"),
        **_numbers("coverage", covered, "coverage"),
        "timing_error": round(float(np.median(errors)), 4) if len(errors) else float("nan"),
        "release": release,
    }


def _numbers(prefix: str, rate: Rate, name: str) -> dict[str, float]:
    if not rate.of:
        return {name: float("nan"), f"{prefix}_low": float("nan"), f"{prefix}_high": float("nan")}
    return {name: round(rate.value, 4), f"{prefix}_low": round(rate.low, 4), f"{prefix}_high": round(rate.high, 4)}


def write_rows_of_panels(runs: Path, size: str = "paper") -> None:
    """The table that ships, with the rows of panels measured anew and all others as they are."""
    kept = rows()
    anew = rows_of_panels(run_panels(runs / "calibration", size), release_of("events"))
    table = pd.concat([kept.loc[kept["what"] != "panel"], anew])
    table.to_csv(SHIPPED, index=False)
    print(anew[["id", "series", "false_alarm_rate", "transitions", "recall", "timing_error"]].to_string(index=False))


if __name__ == "__main__":
    write_rows_of_panels(Path("checkpoints/runs"))
