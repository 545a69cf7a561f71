"""The tidy table and the shapes in which people want to see it: runs stay apart, everywhere."""

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import save_file

import probes
from checkpoints import open_run
from probes.circuits import ov
from tests.walking_run import HEADS, LAYERS, STEPS, write_run


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Of two runs that differ in their seed, and in how many of their steps there are."""
    folder = tmp_path_factory.mktemp("runs")
    paths = [write_run(folder / f"seed{seed}", STEPS[: 6 - seed], seed) for seed in (0, 1)]
    return [probes.measure(path, probes=("norm", "marginalized_effective_rank"), audit=False) for path in paths]


def test_a_path_is_as_good_as_a_run(tmp_path):
    path = write_run(tmp_path / "walk", [0, 1, 2])
    pd.testing.assert_frame_equal(probes.measure(str(path)), probes.measure(open_run(path)), check_exact=True)


def test_runs_stay_apart_by_head(tables):
    both = pd.concat(tables)
    wide = probes.by_head(both, "norm", "ov")
    assert wide.columns.names == ["run", "layer", "head"]
    assert wide.shape == (len(STEPS), 2 * LAYERS * HEADS)
    for table in tables:
        alone = probes.by_head(table, "norm", "ov")
        assert alone.columns.names == ["layer", "head"]
        name = table["run"].iloc[0]
        np.testing.assert_array_equal(wide[name].loc[alone.index], alone)


def test_two_runs_of_one_name_are_not_averaged_but_refused(tables):
    both = pd.concat([table.assign(run="run") for table in tables])
    with pytest.raises(ValueError, match=r"more than once for run 'run', step 0, layer 0, head 0: .*assign\(run="):
        probes.by_head(both, "norm", "ov")


def test_means_keep_runs_apart(tables):
    both = probes.mean_over_layers(pd.concat(tables))
    for table in tables:
        alone = probes.mean_over_layers(table)
        mine = both[both["run"] == table["run"].iloc[0]]
        np.testing.assert_array_equal(mine["value"], alone["value"])


def test_metrics_of_one_run_are_not_laid_beside_another(tables):
    both = pd.concat(tables)
    metrics = [pd.DataFrame({"loss": [float(seed)]}, index=pd.Index([0], name="step")) for seed in (0, 1)]
    with pytest.raises(ValueError, match=r"the table has the runs seed0, seed1: pass \{name of the run: its metrics\}"):
        probes.with_metrics(both, metrics[0])
    with pytest.raises(ValueError, match="there are no metrics of seed1; there are those of seed0"):
        probes.with_metrics(both, {"seed0": metrics[0]})
    joined = probes.with_metrics(both, {"seed0": metrics[0], "seed1": metrics[1]})
    assert len(joined) == len(both)
    assert (joined["loss"] == joined["run"].str.removeprefix("seed").astype(float)).all()


def test_a_table_says_what_is_in_it_and_what_is_missing(tmp_path):
    table = probes.measure(write_run(tmp_path / "a <b>", [0, 10, 20]), audit=False)
    text = repr(table)
    assert "a <b>: 3 checkpoints, steps 0 to 20; 2 layers, 6 heads" in text
    assert "circuits ov, qk; probes norm, effective_rank" in text
    assert f"{len(table)} numbers, 24 of them missing:\n  24 x no checkpoint before this one" in text
    page = table._repr_html_()
    assert "a &lt;b&gt;: 3 checkpoints" in page
    assert "<table" in page
    assert "a <b>: 2 checkpoints, steps 10 to 20" in repr(table[table["step"] > 0])
    assert repr(table.iloc[:0]).startswith("no numbers")
    assert repr(table[["step", "value"]]) == repr(pd.DataFrame(table)[["step", "value"]])


def test_a_fraction_of_the_last_step_may_be_off_by_rounding(tmp_path):
    """0.1 x 30 is 3.0000000000000004 and 0.7 x 10 is 7.000000000000001, but 0.29 x 100 is 28.999999999999996."""
    path = write_run(tmp_path / "walk", [0, 29, 50, 100])
    table = probes.measure(path, probes="subspace_distance", references=0.29, audit=False)
    assert table.attrs["references"] == {"reference@29": 29}


def test_every_missing_component_of_every_head_says_why(tmp_path):
    path = write_run(tmp_path / "walk", [0, 1], config={"model_type": "gpt2", "n_head": 12, "n_embd": 24})  # rank two
    table = probes.measure(path, probes="marginalized_effective_rank", audit=False)
    assert (table["value"].isna() == table["why_missing"].notna()).all()
    assert (table["value"].isna() == (table["component"] >= 2)).all()
    assert set(table["why_missing"].dropna()) == {"only 2 non-zero singular values"}


def test_heads_of_another_size_in_one_layer_of_the_reference_are_compared_all_the_same(tmp_path):
    path = write_run(tmp_path / "walk", STEPS)
    tensors = dict(open_run(path)[500])
    tensors["h.1.attn.c_attn.weight"] = tensors["h.1.attn.c_attn.weight"][:, :36].contiguous()  # four a head, not eight
    tensors["h.1.attn.c_proj.weight"] = tensors["h.1.attn.c_proj.weight"][:12].contiguous()
    save_file(tensors, path / "step500.safetensors")
    table = probes.measure(path, "ov", probes=("norm", "subspace_distance"), audit=False)
    assert table["value"].notna().all()
    run = open_run(path)
    earlier, final = (ov(run.heads.read(run[step], 1))[2] for step in (200, 500))
    assert final.inner == 4
    found = probes.by_head(table, "subspace_distance", "ov").loc[200, (1, 2)]
    assert found == pytest.approx(float(probes.subspace_distance(earlier, final, normalised=True)), rel=1e-9)
