"""The tools behind the pages on transformers: runs trained side by side, curves of heads, numbers read off curves."""

import json
import os
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from analyses.paper_000_exact_dynamics import transformer_runs
from analyses.paper_000_exact_dynamics.mode_reach import counted, order, summary, yardstick
from analyses.paper_000_exact_dynamics.transformer_runs import seeds_in_words
from analyses.registry import GROUPS
from analyses.tools import side_by_side
from analyses.tools.side_by_side import Job, train_all
from analyses.tools.study import Study, cliff, dip, each, first_above, halfway_down, nearest_peak, notch
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, average, beyond, seen, seen_only_here, together
from checkpoints import open_run
from models.attention_only.model import AttentionOnlyConfig, attention_only
from models.attention_only.tasks import RepeatedSubsequence
from models.linear_icl.model import LinearICL, LinearICLConfig
from models.training import DivergedError
from probes.circuits import circuits_of

SMALL = AttentionOnlyConfig(
    task=RepeatedSubsequence(vocabulary=7, length=11, subsequence=3, copies=2), n_heads=3, d_model=18, d_head=6, batch=4
)


def job(directory: Path, seed: int, steps: int = 40, config: AttentionOnlyConfig = SMALL) -> Job:
    return Job(partial(attention_only, config), seed, directory, "small", steps, tuple(range(0, steps + 1, 5)))


def files(path: Path) -> dict[str, tuple[bytes, int]]:
    return {f.name: (f.read_bytes(), f.stat().st_mtime_ns) for f in path.iterdir() if not f.name.startswith("resume")}


@pytest.mark.slow
def test_runs_trained_side_by_side_are_those_trained_one_by_one_and_are_not_trained_again(tmp_path):
    one_by_one = train_all([job(tmp_path / "one", seed) for seed in (0, 1)], workers=1)
    jobs = [job(tmp_path / "two", seed) for seed in (0, 1)]
    jobs[0].train()
    first = files(tmp_path / "two" / "small-seed0")
    both = train_all([*jobs, job(tmp_path / "two", 2)], workers=2)  # two to train, in two processes
    for alone, together_ in zip(one_by_one, both, strict=False):
        assert {n: b for n, (b, _) in files(alone.path).items()} == {
            n: b for n, (b, _) in files(together_.path).items()
        }
    assert files(tmp_path / "two" / "small-seed0") == first


def test_finished_runs_start_no_process(tmp_path, monkeypatch):
    jobs = [job(tmp_path, seed) for seed in (0, 1)]
    for one in jobs:
        one.train()

    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(side_by_side, "ProcessPoolExecutor", refuse)
    assert [run.seed for run in train_all(jobs, workers=2)] == [0, 1]
    assert jobs[0].reached() == 40
    assert job(tmp_path, 7).reached() == 0


def test_a_run_of_another_setting_in_the_same_place_is_refused_and_not_overwritten(tmp_path):
    job(tmp_path, 0).train()
    other = AttentionOnlyConfig(task=SMALL.task, n_heads=3, d_model=18, d_head=6, batch=5)
    with pytest.raises(ValueError, match="has another config"):
        train_all([job(tmp_path, 0, config=other)], workers=1)


@pytest.mark.slow
def test_what_goes_wrong_in_a_process_is_said_by_name(tmp_path):
    make = partial(LinearICL, LinearICLConfig(batch=8, learning_rate=50.0))
    jobs = [Job(make, seed, tmp_path, "wild", 2000, (0, 2000)) for seed in (0, 1)]
    with pytest.raises(DivergedError, match=r"wild-seed\d: the loss is"):
        train_all(jobs, workers=2)


def test_there_are_as_many_processes_as_cores_this_one_may_use():
    if hasattr(os, "sched_getaffinity"):
        assert side_by_side._cores() == len(os.sched_getaffinity(0))


def note_cores(name: str, folder: Path) -> None:
    """What one of two processes sees; 'b' fails."""
    if name == "b":
        raise RuntimeError("b cannot be done")
    (folder / name).write_text(f"{sorted(os.sched_getaffinity(0))} {side_by_side._cores()} {os.getpid()}")


@pytest.mark.slow
@pytest.mark.skipif(side_by_side._cores() < 2 or not hasattr(os, "sched_getaffinity"), reason="no two cores to bind to")
def test_two_at_a_time_share_the_cores_and_what_fails_stops_nobody(tmp_path, capfd):
    with pytest.raises(RuntimeError, match="b cannot"):
        side_by_side.two_at_a_time(partial(note_cores, folder=tmp_path), ["b", "a", "c", "d"])
    told = [(tmp_path / name).read_text().rsplit(" ", 2) for name in ("a", "c", "d")]
    assert "b failed: b cannot be done" in capfd.readouterr().err
    mine = sorted(os.sched_getaffinity(0))
    assert {tuple(json.loads(cores)) for cores, _, _ in told} <= {tuple(mine[::2]), tuple(mine[1::2])}
    assert all(int(count) == len(json.loads(cores)) for cores, count, _ in told)
    assert all(int(pid) != os.getpid() for _, _, pid in told)


def test_committed_verdicts_name_the_seeds_that_the_code_trains_and_fresh_ones_are_others():
    committed = GROUPS["transformers"].verdicts_file.read_text()
    attention = transformer_runs.SEEDS["quick"], transformer_runs.FRESH_SEEDS["quick"]
    modular = transformer_runs.modular_seeds("quick"), transformer_runs.modular_seeds("quick", fresh=True)
    for first, fresh in (attention, modular):
        assert f"first seeds: {told(first)}; fresh seeds: {told(fresh)}*" in committed
        assert all(not set(first[kind]) & set(fresh[kind]) for kind in fresh)


def told(seeds) -> str:
    return seeds_in_words({kind: [SimpleNamespace(seed=seed) for seed in chosen] for kind, chosen in seeds.items()})


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    return open_run(job(tmp_path_factory.mktemp("runs"), 3).train())


def test_circuits_are_the_products_of_transformer_lens_own_matrices(small_run):
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_native(small_run.config["bridge"])
    checkpoint = small_run.checkpoint(40)
    bridge.load_state_dict(dict(checkpoint))
    found = circuits_of(small_run, ("ov", "qk"))
    built = {name: torch.stack([c.read(checkpoint, i).dense() for i in c.layers]) for name, c in found.items()}
    expected = {"ov": bridge.W_V @ bridge.W_O, "qk": bridge.W_Q @ bridge.W_K.mT}
    for name, matrix in expected.items():
        assert built[name].shape == (2, 3, 18, 18)
        torch.testing.assert_close(built[name], matrix.detach().double(), rtol=0, atol=1e-6)


def dense_heads(run, circuit: str) -> dict[int, np.ndarray]:
    """By step, all heads of all layers, multiplied out: [head, d_model, d_model]."""
    found = circuits_of(run, (circuit,))[circuit]
    return {
        step: np.concatenate([found.read(run.checkpoint(step), layer).dense().numpy() for layer in found.layers])
        for step in run.steps
    }


@pytest.mark.parametrize("circuit", ["ov", "qk"])
def test_curves_of_a_study_are_what_the_plain_functions_say_of_matrices_multiplied_out(small_run, circuit):
    study, heads = Study(small_run, anchor=20.0, spacing=10, horizons=(1.1,)), dense_heads(small_run, circuit)
    for k in (0, 3):
        expected = [probes.marginalized_effective_rank(m, removed=k)[..., k].mean() for m in heads.values()]
        np.testing.assert_allclose(study.rank(circuit, k)[1], expected, rtol=1e-6)
    np.testing.assert_allclose(study.norm(circuit), [np.linalg.norm(m) for m in heads.values()], rtol=1e-6)
    before, after = [step for step in heads if step < 20], [step for step in heads if step > 20]
    for name in ("subspace_distance", "column_subspace_distance"):
        found = pd.Series(study.distance_from(20, circuit, name), index=list(heads))
        expected = [getattr(probes, name)(heads[s], heads[20], normalised=True).mean() for s in before]
        np.testing.assert_allclose(found[before], expected, rtol=1e-6)
        assert found[20] == pytest.approx(0, abs=1e-6)
        assert found[after].isna().all()  # what comes after the end is not on the way to it
    steps, drift = study.drift_of(circuit)
    assert steps.tolist() == [10, 20, 30, 40]  # not 15, 25, though 10 steps before them there is a checkpoint too
    expected = [probes.subspace_drift(heads[step - 10], heads[step]).mean() for step in steps]
    np.testing.assert_allclose(drift, expected, rtol=1e-6)


def test_every_head_of_a_study_has_a_column(small_run):
    study = Study(small_run, anchor=20.0, spacing=10, horizons=(1.1,))
    ranks = study.by_head("marginalized_effective_rank", "qk", 0)
    assert ranks.columns.tolist() == [(layer, head) for layer in range(2) for head in range(3)]
    assert ranks.index.tolist() == small_run.steps
    np.testing.assert_allclose(ranks.mean(axis=1), study.rank("qk")[1])


def test_a_study_of_a_run_with_a_step_that_cannot_be_right_is_refused(tmp_path):
    path = job(tmp_path, 3).train()
    files = sorted(path.glob("step-*.safetensors"))
    shutil.copy(files[-1], files[4])
    with pytest.raises(ValueError, match=r"small-seed3.*1 condemned.*train it again"):
        _ = Study(open_run(path), anchor=20.0, spacing=10, horizons=()).table


def test_numbers_read_off_curves_by_hand():
    steps = np.arange(0.0, 11)
    values = np.array([10, 9, 8, 6, 4, 5, 6, 8, 8, 7, 7.0])
    assert dip(steps, values, around=5) == (pytest.approx(1 - 4 / 8), 4.0)
    assert dip(steps, steps + 1, around=5)[0] == 0  # only rises
    assert dip(steps, 20 - steps, around=5)[0] == 0  # only falls
    assert halfway_down(steps, np.append(10 - steps[:10], np.nan)) == 5
    assert np.isnan(halfway_down(steps, np.full(11, 3.0)))
    assert first_above(pd.Series([0.1, 0.5, 0.9], index=[10, 20, 30]), 0.4) == 20
    assert np.isnan(first_above(pd.Series([0.1, 0.2]), 0.4))


def test_a_notch_is_a_sharp_v_at_its_step_and_not_a_slow_sag():
    steps = np.geomspace(10, 5000, 200)
    x = np.log(steps / 1000)
    sharp = 10 - np.maximum(0, 2 - 2 * np.abs(x) / 0.3)
    depth, at = notch(steps, sharp, around=1000)
    assert depth == pytest.approx(0.2, abs=0.01)
    assert at == pytest.approx(1000, rel=0.02)
    assert notch(steps, 10 - 2 * x, around=1000)[0] == pytest.approx(0, abs=1e-9)  # straight in ln(step)
    sag = 10 - 2 * np.exp(-0.5 * (x / 1.5) ** 2)
    assert notch(steps, sag, around=1000)[0] < 0.015
    assert dip(steps, sag, around=1000)[0] > 0.08  # which a lowest point below shoulders anywhere takes for a dip
    assert notch(steps, sharp, around=200)[0] < 0.01  # there is one, elsewhere
    assert np.isnan(notch(steps[::60], sharp[::60], around=1000)[0])  # no checkpoint near


def test_a_peak_counts_by_one_scale_for_all_runs():
    steps = np.arange(1.0, 200)
    bump = np.exp(-0.5 * (np.log(steps / 60) / 0.1) ** 2)
    assert nearest_peak(steps, bump, around=50, scale=1.0) == pytest.approx(1.2, rel=0.01)
    assert np.isnan(nearest_peak(steps, 0.01 * bump, around=50, scale=1.0))  # flat on the scale of the others
    assert np.isnan(nearest_peak(steps, bump, around=10, scale=1.0))  # too far away


def test_the_nearest_cliff_of_a_planted_loss(rng):
    steps = np.arange(4000)
    loss = pd.Series(3 - 1.0 / (1 + np.exp(-(steps - 2000) / 60)) + 0.02 * rng.standard_normal(4000))
    assert cliff(loss, around=1900) == pytest.approx(2000 / 1900, rel=0.01)
    assert np.isnan(cliff(loss, around=1000))


def test_verdicts_against_controls_by_hand():
    assert beyond([2, 3], [1, 1.5]) == HOLDS
    assert beyond([2, 1], [1.5]) == IN_PART
    assert beyond([1, 1, 2], [1.5, np.nan]) == FAILS
    assert seen_only_here([1.0, 1.1], [np.nan]) == HOLDS
    assert seen_only_here([1.0, 1.1], [0.9]) == IN_PART
    assert seen_only_here([1.0, np.nan], [np.nan]) == IN_PART
    assert seen_only_here([1.0, np.nan], [0.9]) == FAILS
    assert seen([1.0, np.nan, 1.25]) == "2 of 3 (at 1.00 - 1.25)"
    assert seen([np.nan]) == "0 of 1"
    assert [together(HOLDS, HOLDS), together(HOLDS, FAILS), together(FAILS, FAILS)] == [HOLDS, IN_PART, FAILS]
    assert average([1, np.nan, 3]) == 2
    assert np.isnan(average([np.nan]))


def table_of(ends: list[float], halfway: list[float]) -> pd.DataFrame:
    rows = pd.DataFrame({"end": ends, "halfway": halfway, "circuit": "ov", "layer": 0, "head": 0})
    return rows.assign(**{"r2 logistic": 0.9, "r2 exponential": 0.8, "r2 power law": 0.95, "r2 straight line": 0.1})


def test_large_modes_first_is_minus_one_and_negligible_modes_do_not_count():
    assert order(table_of([4, 3, 2, 0.1], [10, 20, 30, 1])) == pytest.approx(-1)
    assert order(table_of([4, 3, 2, 1], [40, 30, 20, 10])) == pytest.approx(1)
    assert len(counted(table_of([4, 3, 2, 0.1], [1, 2, 3, 4]))) == 3
    assert summary(table_of([4, 3, 2], [1, 2, 3])) == pytest.approx(
        {"logistic": 0.9, "best rival": 0.95, "wins": 0, "order": -1, "modes": 3}
    )


def test_the_linear_head_is_logistic_and_its_large_modes_come_last():
    found = summary(yardstick())
    assert found["wins"] == 1
    assert found["order"] == pytest.approx(1)


def test_a_study_reads_curves_at_multiples_of_its_anchor(small_run):
    study = Study(small_run, anchor=20.0, spacing=10, horizons=(1.1, 1.6))
    assert study.end(1.1) == 20
    assert study.end(1.6) == 30
    references = {name for name in study.table["probe"].unique() if name.startswith("subspace_distance")}
    assert references == {"subspace_distance@20", "subspace_distance@30", "subspace_distance@40"}
    assert study.at(study.steps.astype(float), 12.5) == 12.5
    assert each(lambda s: s.anchor, [study, study]).tolist() == [20, 20]
