"""A probe is a value: defined anywhere, measured by every engine and the monitor, its meaning in the table."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from checkpoints import open_run
from probes.measuring.catalogue import PROBES, as_probes
from probes.measuring.engines import Processes
from probes.measuring.fingerprint import fingerprint
from probes.measuring.tables import read_table, write_table
from tests import small_gpt2
from tests.tiny_training import Training
from tests.walking_run import HEADS, LAYERS, STEPS, write_run


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "walk", STEPS)


@pytest.fixture(scope="module")
def run(path):
    return open_run(path)


def nuclear(matrix):
    """Sum of the singular values."""
    return np.linalg.norm(matrix, "nuc")


def test_a_function_of_a_matrix_is_handed_each_head_multiplied_out(run):
    table = probes.measure(run, probes=["norm", {"nuclear": nuclear, "frobenius": np.linalg.norm}])
    for circuit in ("ov", "qk"):
        np.testing.assert_allclose(
            probes.by_head(table, "frobenius", circuit), probes.by_head(table, "norm", circuit), rtol=1e-12
        )
    heads = run.heads.read(run.checkpoint(300), 1)
    dense = (heads.W_V[2] @ heads.W_O[2]).double().numpy()
    by_hand = np.linalg.svd(dense, compute_uv=False).sum()
    assert probes.by_head(table, "nuclear", "ov").loc[300, (1, 2)] == pytest.approx(by_hand, rel=1e-5)


def test_the_meaning_of_a_probe_is_in_the_table_and_in_its_file(run, tmp_path):
    own = probes.Probe.of_spectrum("top", lambda s: s[:, 0], definition="s_1", unit="weights", citation="by hand")
    table = probes.measure(run, probes=[own, {"nuclear": nuclear}])
    write_table(table, tmp_path / "table.parquet")
    definitions = read_table(tmp_path / "table.parquet").attrs["definitions"]
    assert definitions == {"top": "s_1 [weights] (by hand)", "nuclear": "Sum of the singular values."}


def test_components_are_numbered(run):
    two = probes.Probe.of_matrix("two", lambda m: np.linalg.svd(m, compute_uv=False)[:2], components=2)
    table = probes.measure(run, probes=[two, "norm"])
    first, second = (probes.by_head(table, "two", "ov", k) for k in (0, 1))
    assert (first > second).all(axis=None)
    assert len(table) == len(STEPS) * LAYERS * HEADS * 2 * 3


CELL = """
import sys
import numpy as np, pandas as pd, probes
from checkpoints import open_run
from probes.measuring.engines import Dask, Processes

scale = 2.0

def nuclear(matrix):
    return scale * np.linalg.norm(matrix, "nuc")   # known in this process alone, with a global beside it

if __name__ == "__main__":
    run, wanted = open_run(sys.argv[1]), ["norm", {"nuclear": nuclear}]
    here = probes.measure(run, probes=wanted)
    pd.testing.assert_frame_equal(probes.measure(run, probes=wanted, engine=Processes(2)), here, check_exact=True)
    from distributed import Client, LocalCluster
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        with Client(cluster) as client:
            found = probes.measure(run, probes=wanted, engine=Dask(client))
    pd.testing.assert_frame_equal(found, here, check_exact=True)
    print(len(here), here["value"].isna().sum())
"""


@pytest.mark.slow
def test_what_a_cell_defines_is_measured_by_every_engine_to_the_last_bit(path, tmp_path):
    (tmp_path / "cell.py").write_text(CELL)
    command = [sys.executable, str(tmp_path / "cell.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(STEPS) * LAYERS * HEADS * 2 * 2), "0"]


def test_a_lambda_goes_to_other_processes_too(run):
    wanted = {"trace": lambda matrix: matrix.trace()}
    here = probes.measure(run, probes=wanted)
    pd.testing.assert_frame_equal(probes.measure(run, probes=wanted, engine=Processes(2)), here, check_exact=True)


def test_a_probe_that_compares_reads_the_reference_or_the_step_before(run):
    def ratio(heads, other):
        return heads.singular_values[:, 0].numpy() / other.singular_values[:, 0].numpy()

    own = [
        probes.Probe("growth", ratio, "s_1(t) / s_1(before)", reads="current, previous"),
        probes.Probe("share", ratio, "s_1(t) / s_1(end)", reads="current, reference"),
        probes.Probe.of_spectrum("top", lambda s: s[:, 0]),
    ]
    table = probes.measure(run, probes=own, drift_over="previous")
    top = probes.by_head(table, "top", "qk")
    np.testing.assert_allclose(probes.by_head(table, "growth@previous", "qk").iloc[1:], (top / top.shift()).iloc[1:])
    np.testing.assert_allclose(probes.by_head(table, "share", "qk"), top / top.iloc[-1])


def test_what_a_function_raises_or_leaves_out_costs_its_own_numbers_and_says_why(run):
    def fussy(matrix):
        if matrix[0, 0] > 0:
            raise ZeroDivisionError("too positive")
        return float("nan") if matrix[1, 1] > 0 else 1.0

    table = probes.measure(run, probes=["norm", {"fussy": fussy, "vector": np.diag}])
    assert table.loc[table["probe"] == "norm", "value"].notna().all()
    found = table[table["probe"] == "fussy"]
    assert (found["value"].isna() == found["why_missing"].notna()).all()
    assert set(found["why_missing"].dropna()) == {"ZeroDivisionError: too positive", "fussy is nan"}
    reasons = table.loc[table["probe"] == "vector", "why_missing"]
    assert reasons.str.contains("gave 24 numbers for one matrix, 1 expected: .* components=").all()
    assert table.attrs["failed"] == {}


def test_heads_that_are_not_finite_are_not_handed_to_anybody(tmp_path):
    path = write_run(tmp_path / "walk", [0, 1, 2])
    from safetensors.torch import load_file, save_file

    tensors = load_file(path / "step1.safetensors")
    tensors["h.0.attn.c_attn.weight"][:, 0] = torch.nan  # a column of the first head's queries
    save_file(tensors, path / "step1.safetensors")
    table = probes.measure(open_run(path), "qk", probes={"nuclear": nuclear}, audit=False)
    row = table[(table["step"] == 1) & (table["layer"] == 0)].set_index("head")
    assert row["why_missing"].to_list()[0] == "the weights are not finite"
    assert row["value"].notna().to_list() == [False, True, True]


def test_another_function_under_the_same_name_is_not_joined_with_the_first_ones_numbers(run, tmp_path):
    probes.measure(run, probes={"own": lambda matrix: matrix.sum()}, resume_dir=tmp_path)
    probes.measure(run, probes={"own": lambda matrix: matrix.sum()}, resume_dir=tmp_path)  # the same: taken up
    with pytest.raises(ValueError, match="holds parts of another measurement"):
        probes.measure(run, probes={"own": lambda matrix: matrix.max()}, resume_dir=tmp_path)


def test_a_function_is_known_by_what_it_does_and_not_by_where_it_stands():
    def made(source: str, line: int = 1, **known) -> str:
        space = {"__name__": "__main__", "np": np, **known}
        exec(compile("\n" * line + source, f"<cell {line}>", "exec"), space)
        return fingerprint(space["probe"])

    plain = "def probe(m):\n    return scale * helper(m)\n"
    helped = "def helper(m):\n    return m.sum()\n" + plain
    assert made(helped, scale=2.0) == made(helped, line=40, scale=2.0)
    assert made(helped, scale=2.0) != made(helped, scale=3.0)
    assert made(helped, scale=2.0) != made(helped.replace("sum", "max"), scale=2.0)
    assert made("probe = lambda m: m.sum()") != made("probe = lambda m: m.max()")
    assert made("probe = lambda m: 1.0") != made("probe = lambda m: 2.0")
    assert made("def probe(m, k=1): return k") != made("def probe(m, k=2): return k")
    assert made("probe = (lambda k: lambda m: k)(1)") != made("probe = (lambda k: lambda m: k)(2)")
    assert made("probe = np.linalg.norm") == fingerprint(np.linalg.norm)
    assert made("def probe(m):\n    return probe(m)") != made("def probe(m):\n    return probe(m) + 1")


def test_bad_probes_are_refused_before_the_work(run):
    for wanted, message in (
        ("efective_rank", r"did you mean 'effective_rank'\?"),
        (["norm", "norm"], "two probes are called 'norm'"),
        ({"norm": nuclear}, "'norm' is a probe of the catalogue: call yours something else"),
        ([], "no probe is asked for"),
        ({"my probe": nuclear}, "a word without spaces"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            probes.measure(run, probes=wanted)
    with pytest.raises(ValueError, match="components is 0"):
        probes.Probe.of_matrix("mine", nuclear, components=0)


def test_removed_is_the_largest_k_everywhere(run):
    table = probes.measure(run, removed=2)
    assert sorted(table["component"].dropna().unique()) == [0, 1, 2]
    assert table.attrs["removed"] == 2
    assert [probe.count for probe in as_probes("marginalized_effective_rank", removed=2)] == [3]
    monitor = probes.Monitor(Training(steps=1).model, budget=1.0, removed=2)
    assert sorted(monitor.table["component"].dropna().unique()) == [0, 1, 2]
    assert monitor.table.attrs["removed"] == 2


def test_a_monitor_measures_probes_of_ones_own(tmp_path):
    training = Training(steps=3)
    with probes.Monitor(training.model, budget=1.0, probes=["norm", {"frobenius": np.linalg.norm}]) as monitor:
        for _, loss in training:
            monitor.step(loss=loss)
    table = monitor.table
    np.testing.assert_allclose(probes.by_head(table, "frobenius", "ov"), probes.by_head(table, "norm", "ov"), rtol=1e-6)
    assert monitor.series("ov.frobenius").index.to_list() == [0, 1, 2, 3]
    assert small_gpt2.CONFIG.n_layer == table["layer"].nunique()


def test_the_catalogue_and_a_misspelt_command_answer_without_torch():
    for command in (["list"], ["--help"], ["mesure"]):
        code = f"import sys; sys.argv = ['probes', *{command!r}]\nfrom probes.__main__ import app\n"
        code += "try:\n    app()\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules, 'pandas' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "False False"
        if command == ["list"]:
            assert all(f"  {name} " in done.stdout for name in PROBES)
            assert all(f"  {name} " in done.stdout for name in ("ov", "qk_folded", "qk_at_8"))
