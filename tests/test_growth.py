"""How modes grow: each planted law is recognised, with its numbers; a run without a theory gets growth laws fitted."""

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
from models.linear_icl.theory import PrintedTheory
from probes.series.growth import LAWS, fit_growth, mode_growth
from tests.test_align_and_measure import REFERENCE

STEPS = np.unique(np.concatenate(([0], np.round(np.geomspace(1, 5000, 60)), np.arange(0, 5001, 50))))
PLANTED = {
    "logistic": 2 / (1 + np.exp(-0.008 * (STEPS - 1800))),
    "exponential": 1.5 - 1.4 * np.exp(-STEPS / 700),
    "power law": 0.1 + 0.03 * STEPS**0.4,
    "straight line": 0.2 + 3e-4 * STEPS,
}


@pytest.mark.parametrize("law", LAWS)
def test_a_planted_law_fits_itself_perfectly(law):
    fits = fit_growth(PLANTED[law], STEPS)
    assert fits[law].r2 == pytest.approx(1, abs=1e-7)
    np.testing.assert_allclose(fits[law].curve, PLANTED[law], atol=2e-3)


@pytest.mark.parametrize("law", ["logistic", "exponential", "power law"])
def test_a_planted_law_is_told_from_its_rivals_in_noise(law, rng):
    values = PLANTED[law] + 0.01 * rng.standard_normal(len(STEPS))
    fits = fit_growth(values, STEPS)
    rivals = max(fits[other].r2 for other in LAWS if other != law)
    assert fits[law].r2 > rivals + 0.01


def test_the_numbers_of_the_formulas_are_recovered():
    logistic = fit_growth(PLANTED["logistic"], STEPS)["logistic"].numbers
    assert logistic == pytest.approx({"end": 2, "half_time": 1800, "rate": 0.008}, rel=1e-3)
    exponential = fit_growth(PLANTED["exponential"], STEPS)["exponential"].numbers
    assert exponential == pytest.approx({"start": 0.1, "end": 1.5, "rate": 1 / 700}, rel=1e-3)
    power = fit_growth(PLANTED["power law"], STEPS)["power law"].numbers
    assert power == pytest.approx({"start": 0.1, "exponent": 0.4}, rel=1e-3)
    line = fit_growth(PLANTED["straight line"], STEPS)["straight line"].numbers
    assert line == pytest.approx({"start": 0.2, "slope": 3e-4})


def test_r2_does_not_depend_on_units_sign_or_how_checkpoints_are_spaced():
    theory = PrintedTheory([1.0], 64, 1e-3)

    def r2(steps: np.ndarray, scale: float = 1.0, unit: float = 1.0) -> list[float]:
        values = scale * (theory.modes(0.01 * steps)[:, 0] + 0.1 * np.sin(np.log(steps + 1)))
        return [fit.r2 for fit in fit_growth(values, unit * steps).values()]

    dense = np.arange(0, 1001, 1.0)
    np.testing.assert_allclose(r2(dense), r2(dense, scale=-7.0, unit=0.3), atol=1e-6)
    spaced = np.unique(np.concatenate(([0], np.round(np.geomspace(1, 1000, 150)))))
    np.testing.assert_allclose(r2(dense), r2(spaced), atol=0.03)  # sums for integrals


def test_a_line_is_the_limit_of_the_others_and_a_constant_follows_none():
    fits = fit_growth(PLANTED["straight line"], STEPS)
    assert fits["exponential"].r2 > 0.9999
    assert fits["power law"].r2 == pytest.approx(1)
    assert all(np.isnan(fit.r2) for fit in fit_growth(np.ones(10)).values())


def test_the_table_of_modes_names_the_best_law_and_does_not_extrapolate_half_times():
    late = 1 / (1 + np.exp(-0.002 * (STEPS - 8000)))  # halfway only after the run
    curves = {0: PLANTED["logistic"], 1: late, 2: np.zeros_like(STEPS)}
    frames = [
        pd.DataFrame({"circuit": "ov", "layer": 0, "head": 1, "mode": k, "step": STEPS, "measured": c})
        for k, c in curves.items()
    ]
    table = mode_growth(pd.concat(frames)).set_index("mode")
    assert table.loc[0, "best"] == "logistic"
    assert table.loc[0, "half_time"] == pytest.approx(1800, rel=1e-3)
    assert np.isnan(table.loc[1, "half_time"])
    assert pd.isna(table.loc[2, "best"])
    assert table["head"].tolist() == [1, 1, 1]


def test_without_a_theory_align_fits_the_modes_of_circuits(tmp_path):
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((6, 2)))[0] for _ in range(2))
    with RunWriter(tmp_path / "run") as writer:
        for step in range(0, 3001, 25):
            sizes = 3 / (1 + np.exp(-0.01 * (step - 600))), 1 / (1 + np.exp(-0.01 * (step - 1500)))
            writer.save(step, {"w": torch.tensor((u * sizes) @ v.T)})
    run = open_run(tmp_path / "run")
    found = probes.align(run, circuits={"w": lambda tensors: tensors["w"][None, None]}, modes=2)
    assert found.modes["half_time"].tolist() == pytest.approx([600, 1500], rel=1e-2)
    assert found.modes["halfway"].tolist() == pytest.approx([600, 1500], rel=1e-2)
    assert found.modes["end"].tolist() == pytest.approx([3, 1], rel=1e-3)
    assert (found.modes["best"] == "logistic").all()
    assert len(found.trajectories) == 2 * len(run.steps)
    assert list(found.trajectories.columns) == ["circuit", "layer", "head", "mode", "step", "measured"]


def test_the_modes_of_the_linear_head_are_logistic_as_its_theory_says():
    run = open_run(REFERENCE)
    modes = probes.align(run, circuits="product", modes=3).modes
    assert (modes["best"] == "logistic").all()
    assert modes["r2 logistic"].min() > 0.98
    aligned = probes.align(run, PrintedTheory([1, 0.5, 0.25], 32, 1e-3)).modes
    measured = sorted(aligned["measured_half_time"] / run.theory["time_per_step"])
    assert sorted(modes["half_time"]) == pytest.approx(measured, rel=0.06)


def test_too_few_checkpoints_or_modes_are_refused(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for step in range(4):
            writer.save(step, {"w": torch.eye(2)})
    run = open_run(tmp_path / "run")
    with pytest.raises(ValueError, match="4 checkpoints: at least 5 are needed to tell growth laws apart"):
        probes.align(run)
    with pytest.raises(ValueError, match="modes is 0"):
        probes.align(open_run(REFERENCE), circuits="product", modes=0)
    with pytest.raises(ValueError, match="steps begin at -1"):
        fit_growth(np.arange(6.0), np.arange(-1, 5))
