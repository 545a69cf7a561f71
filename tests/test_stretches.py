"""Drift over a stated stretch: the same stretch for every row, or a reason."""

import numpy as np
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run, schedules
from probes.measuring.stretches import check_stretch, partner, since, suffix, usual_stretch

UNEVEN = [0, 1, 2, 4, 8, 100, 149, 150, 200, 250, 300, 1000]


def partners(stretch, steps):
    return {step: partner(stretch, steps, place) for place, step in enumerate(steps)}


def test_partners_by_hand():
    assert partners("previous", [0, 3, 10]) == {0: "no checkpoint before this one", 3: 0, 10: 3}
    by_steps = partners(50, UNEVEN)
    assert [by_steps[step] for step in (150, 200, 250, 300)] == [100, 150, 200, 250]
    assert by_steps[149] == "no checkpoint 50 steps before this one, at step 99"
    by_ratio = partners(2.0, UNEVEN)
    assert [by_ratio[step] for step in (2, 4, 8, 200, 300)] == [1, 2, 4, 100, 150]
    assert by_ratio[1000] == "no checkpoint near step 500 = 1000 / 2; the nearest is 300"
    assert by_ratio[1] == "no checkpoint near step 0.5 = 1 / 2"  # step 0 has no logarithm


@pytest.mark.parametrize("ratio", [1.1, 1.2, 1.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_every_partner_is_the_nearest_and_within_a_third_of_the_ratio(ratio, seed):
    rng = np.random.default_rng(seed)
    steps = sorted({int(step) for step in 10 ** rng.uniform(0, 4, 80)})
    for place, step in enumerate(steps):
        off = [abs(np.log(step / other / ratio)) for other in steps[:place] if other > 0]
        found = partner(ratio, steps, place)
        if isinstance(found, int):
            assert abs(np.log(step / found / ratio)) == min(off) <= np.log(ratio) / 3 + 1e-12
        else:
            assert not off or min(off) > np.log(ratio) / 3 - 1e-12


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (list(range(0, 5001, 50)), 50),
        (list(range(0, 200, 10)), 10),
        (list(range(100_000, 110_001, 1000)), 1000),
        (schedules.pythia(143_000), 2.0),
        (schedules.log_spaced(10_000, 50), 1.2),
        ([0, 10, 100, 1000, 10_000], 10.0),
        ([0, 5], "previous"),
    ],
)
def test_the_usual_stretch_fits_the_schedule(steps, expected):
    found = usual_stretch(steps)
    assert found == expected
    assert type(found) is type(expected)  # 10 steps are not a ratio of 10


def test_names_and_words_of_stretches():
    assert [suffix(stretch) for stretch in ("previous", 250, 1.2, 2.0)] == ["@previous", "@-250", "@/1.2", "@/2"]
    assert since(250) == "since the checkpoint 250 steps before"
    assert since(1.2) == "since the checkpoint nearest to step / 1.2"
    for bad in (0, -5, 1.0, 0.5, True, "before", float("inf"), None):
        with pytest.raises(ValueError, match="'previous', a number of steps"):
            check_stretch(bad)


def turning(path, steps):
    """A run whose one row turns by a thousandth per step."""
    with RunWriter(path) as writer:
        for step in steps:
            angle = torch.tensor(1e-3 * step, dtype=torch.float64)
            writer.save(step, {"row": torch.stack((angle.cos(), angle.sin(), torch.zeros_like(angle)))[None]})
    return open_run(path)


def row(tensors):
    return tensors["row"][None, None]


def test_on_uneven_checkpoints_drift_over_a_stretch_does_not_draw_the_schedule(tmp_path):
    run = turning(tmp_path / "run", sorted({*range(100, 1001, 50), 149, 349, 351, 777}))
    table = probes.measure(run, {"row": row}, drift_over=("previous", 50), audit=False)
    over_50, previous, speed = (
        probes.by_head(table, name, "row")[0, 0].dropna()
        for name in ("subspace_drift@-50", "subspace_drift@previous", "subspace_drift_per_step@previous")
    )
    np.testing.assert_allclose(over_50, np.sin(0.05), rtol=1e-9)
    np.testing.assert_allclose(speed, 1e-3, rtol=1e-3)
    assert previous.max() / previous.min() > 20  # a sawtooth: neighbours are 1 to 50 steps apart


def test_without_being_asked_drift_is_measured_over_what_fits_and_says_so(tmp_path):
    run = turning(tmp_path / "run", [*range(0, 501, 50), 499])
    table = probes.measure(run, {"row": row}, audit=False)
    assert table.attrs["drift_over"] == {"drift": 50}
    assert table.attrs["definitions"]["subspace_drift"].endswith("since the checkpoint 50 steps before")
    drift = probes.by_head(table, "subspace_drift", "row")[0, 0]
    assert drift.dropna().index.tolist() == list(range(50, 501, 50))
    np.testing.assert_allclose(drift.dropna(), np.sin(0.05), rtol=1e-9)
    missing = table[(table["probe"] == "subspace_drift") & (table["step"] == 499)]
    assert missing["why_missing"].item() == "no checkpoint 50 steps before this one, at step 449"


def test_nothing_to_compare_with_is_refused_and_not_left_out(tmp_path):
    run = turning(tmp_path / "run", [0, 1, 2])
    for nothing in ({"drift_over": ()}, {"references": ()}):
        with pytest.raises(ValueError, match=r"is empty, so subspace_.* would have no rows"):
            probes.measure(run, {"row": row}, **nothing)
    assert len(probes.measure(run, {"row": row}, probes="norm", references=(), drift_over=())) == 3


def test_what_a_drift_is_measured_from_is_told_apart_from_other_measurements(tmp_path):
    run = turning(tmp_path / "run", range(0, 101, 10))
    probes.measure(run, {"row": row}, resume_dir=tmp_path / "parts", drift_over=10)
    with pytest.raises(ValueError, match="parts of another measurement"):
        probes.measure(run, {"row": row}, resume_dir=tmp_path / "parts", drift_over=20)
