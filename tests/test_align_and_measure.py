"""Alignment with theory and the tidy table, on the committed reference run and on planted ones."""

from pathlib import Path

import numpy as np
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
from models.linear_icl.model import CIRCUITS, exact_theory, printed_theory
from models.linear_icl.presets import PRESETS
from models.linear_icl.theory import PrintedTheory
from probes.measuring.catalogue import PROBES

REFERENCE = Path(__file__).parents[1] / "checkpoints" / "reference" / "linear-icl"


@pytest.fixture(scope="module")
def reference():
    return open_run(REFERENCE)


def planted(path: Path, theory: PrintedTheory, stretch: float = 1.0):
    """A run whose modes follow the theory exactly, `stretch` times slower."""
    d = len(theory.eigenvalues)
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((d, d)))
    section = {
        "time_per_step": 0.1,
        "mode_product": ["p2", "q1"],
        "mode_basis": basis.tolist(),
        "conserved": ["p2", "q1"],
        "null": ["p1", "q2"],
    }
    with RunWriter(path, family="linear-icl", theory=section, circuits=CIRCUITS) as writer:
        for step in (*range(0, 600, 5), *range(600, 3000, 25)):
            time = np.array([0.1 * step / stretch])
            writer.log(step, loss=theory.loss(time)[0])
            if step > 400 and step % 50:  # late modes are slow
                continue
            root, zero = torch.tensor(basis * np.sqrt(theory.modes(time)[0]) @ basis.T), torch.zeros(d, d)
            writer.save(step, {"p1": zero, "p2": root, "q1": root, "q2": zero})
    return open_run(path)


def test_a_run_that_follows_the_theory_aligns_perfectly(tmp_path):
    theory = PrintedTheory([1, 0.5, 0.25], 64, 1e-3)
    found = probes.align(planted(tmp_path / "run", theory), theory)
    np.testing.assert_allclose(found.modes["half_time_ratio"], 1, rtol=1e-2)
    np.testing.assert_allclose(found.modes["end_ratio"], 1, rtol=1e-6)
    np.testing.assert_allclose(found.modes["r2"], 1, atol=1e-9)
    assert found.loss_r2 == pytest.approx(1)
    assert found.conserved_drift == pytest.approx(0, abs=1e-12)
    assert found.null_growth == 0


def test_a_run_that_is_twice_as_slow_shows_it(tmp_path):
    theory = PrintedTheory([1, 0.5], 64, 1e-3)
    found = probes.align(planted(tmp_path / "run", theory, stretch=2.0), theory)
    np.testing.assert_allclose(found.modes["half_time_ratio"], 2, rtol=2e-2)
    assert found.modes["r2"].max() < 0.98


def test_drift_of_the_conserved_quantity_and_growth_of_the_null_blocks_by_hand(tmp_path):
    section = {
        "time_per_step": 0.1,
        "mode_product": ["p", "q"],
        "mode_basis": [[1, 0], [0, 1]],
        "conserved": ["p", "q"],
    }
    with RunWriter(tmp_path / "run", theory=section | {"null": ["n"]}) as writer:
        for step, (p, q, n) in enumerate([(1, 1, 0), (2, 1, 1), (3, 2, 4)]):  # p^2 - q^2 is 0, 3, 5 per entry
            writer.log(step, loss=1.0)
            eye = torch.eye(2, dtype=torch.float64)
            writer.save(step, {"p": p * eye, "q": q * eye, "n": n * eye})
    found = probes.align(open_run(tmp_path / "run"), PrintedTheory([1, 0.5], 64, 1e-3))
    assert found.conserved_drift == pytest.approx(10 / 26)
    assert found.null_growth == pytest.approx(np.sqrt(32 / 26))


class Resting:
    """A theory of two modes, of heads that do nothing."""

    name = "resting"
    fixed_point = np.array([1.0, 1.0])
    half_times = np.array([1.0, 1.0])

    def __init__(self, quantities: int) -> None:
        self.quantities = quantities

    def modes(self, times):
        return np.ones((len(times), 2))

    def loss(self, times):
        return np.ones(len(times))

    def conserved(self, times):
        return np.zeros((len(times), self.quantities))


def test_modes_of_several_heads_and_a_constant_for_each_head_by_hand(tmp_path):
    section = {
        "time_per_step": 1.0,
        "mode_product": ["v", "k", "q"],
        "mode_subscripts": "h,hi,hj->ij",
        "mode_basis": [[1, 0], [0, 1]],
        "conserved": ["v", "k"],
        "conserved_axes": 1,
    }
    k = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    with RunWriter(tmp_path / "run", theory=section) as writer:
        for step in range(4):
            writer.log(step, loss=1.0)
            writer.save(step, {"v": torch.tensor([1.0, step]), "k": k, "q": 3 * k})
    found = probes.align(open_run(tmp_path / "run"), Resting(2))
    # head 0 writes 1 x 3 along the first axis, head 1 step x 2 x 6 along the second
    np.testing.assert_allclose(found.trajectories["measured"], [3, 0, 3, 12, 3, 24, 3, 36])
    np.testing.assert_allclose(found.conserved["measured"], [0, -4, 0, -3, 0, 0, 0, 5])
    assert found.conserved_drift == pytest.approx(9 / (1 + 9 + 1 + 4))
    assert found.null_growth == 0
    with pytest.raises(ValueError, match="the theory has 1 conserved quantities and run 'run' has 2"):
        probes.align(open_run(tmp_path / "run"), Resting(1))


def test_amplitudes_saved_as_they_are_need_no_basis_and_nothing_has_to_be_conserved(tmp_path):
    section = {"time_per_step": 1.0, "mode_product": ["a"], "mode_subscripts": "k->k"}
    with RunWriter(tmp_path / "run", theory=section) as writer:
        for step in range(3):
            writer.log(step, loss=1.0)
            writer.save(step, {"a": torch.tensor([step, 2.0 * step])})
    found = probes.align(open_run(tmp_path / "run"), Resting(0))
    np.testing.assert_allclose(found.trajectories["measured"], [0, 0, 1, 2, 2, 4])
    assert np.isnan(found.conserved_drift)
    assert np.isnan(found.null_growth)
    assert found.conserved.empty


def test_the_reference_run_sides_with_the_exact_flow(reference):
    exact = probes.align(reference, exact_theory(reference.config, reference.theory))
    printed = probes.align(reference, printed_theory(reference.config))
    np.testing.assert_allclose(exact.modes["end_ratio"], 1, atol=0.02)
    np.testing.assert_allclose(exact.modes["half_time_ratio"], 1, atol=0.05)
    assert printed.modes["half_time_ratio"].iloc[2] > 1.08
    assert exact.conserved_drift < 0.05
    assert exact.null_growth < 0.02
    assert list(exact.trajectories.columns) == ["step", "time", "mode", "predicted", "measured"]
    assert len(exact.trajectories) == 3 * len(reference.steps)


@pytest.mark.slow
def test_the_reference_run_is_what_the_quick_preset_produces(reference, tmp_path):
    fresh = open_run(PRESETS["quick"].train([0], tmp_path, "linear-icl", quiet=True)[0])
    assert fresh.steps == reference.steps
    # another processor rounds differently; the run does not amplify that
    np.testing.assert_allclose(fresh.metrics["loss"], reference.metrics["loss"], rtol=1e-6)


def test_a_run_without_a_theory_or_too_short_is_refused_by_name(tmp_path):
    with RunWriter(tmp_path / "plain") as writer:
        writer.save(0, {"w": torch.ones(2, 2)})
    with pytest.raises(ValueError, match=r"run 'plain' does not say .* run\.json has no 'theory'"):
        probes.align(open_run(tmp_path / "plain"), PrintedTheory([1.0], 4, 1e-3))
    theory = PrintedTheory([1, 0.5], 64, 1e-3)
    run = planted(tmp_path / "two", theory)
    with pytest.raises(ValueError, match="the theory has 3 modes and run 'two' has 2"):
        probes.align(run, PrintedTheory([1, 0.5, 0.25], 64, 1e-3))


def test_the_table_of_the_reference_run_has_its_columns_and_every_row(reference):
    table = probes.measure(reference)
    assert list(table.columns) == [
        "run", "step", "layer", "head", "circuit", "probe", "component", "value", "why_missing"
    ]  # fmt: skip
    per_matrix = sum(probe.count for probe in PROBES.values())  # the marginalized rank has five
    assert len(table) == len(reference.steps) * 2 * per_matrix
    assert set(table["circuit"]) == {"ov", "qk"}
    assert set(table["probe"]) == set(table.attrs["definitions"])


def test_what_is_missing_says_why_and_nothing_else_is_missing(reference):
    table = probes.measure(reference, circuits=("ov", "qk", "product"))
    assert (table["value"].isna() == table["why_missing"].notna()).all()
    full_rank = table[table["probe"] == "subspace_distance"]
    assert full_rank["why_missing"].str.contains("spans all 3 dimensions").all()
    assert table[table["component"] == 4]["why_missing"].str.contains("only 3 non-zero").all()


def test_values_equal_the_pure_functions_called_by_hand(reference):
    table = probes.measure(reference, circuits=("product",), removed=2)
    step = reference.steps[40]
    tensors = reference.checkpoint(step)
    product = tensors["p2"] @ tensors["q1"]
    rows = table[table["step"] == step].set_index(["probe", "component"])["value"]
    assert rows["effective_rank"].iloc[0] == pytest.approx(probes.effective_rank(product).item(), rel=1e-12)
    assert rows["norm"].iloc[0] == pytest.approx(product.norm().item(), rel=1e-12)
    by_hand = probes.marginalized_effective_rank(product, removed=2)
    np.testing.assert_allclose(rows["marginalized_effective_rank"], by_hand, rtol=1e-10)


def test_a_zero_matrix_and_rectangular_circuits_get_rows_with_reasons(tmp_path):
    with RunWriter(tmp_path / "run", family="linear-icl", circuits=CIRCUITS) as writer:
        for step in (0, 1, 2):
            q1 = torch.zeros(3, 3) if step == 0 else torch.diag(torch.tensor([1.0, step, 0.0]))
            writer.save(step, {"p2": torch.eye(3), "q1": q1})
    table = probes.measure(open_run(tmp_path / "run"), circuits=("qk",))
    zero = table[(table["step"] == 0) & (table["probe"] == "effective_rank")]
    assert zero["why_missing"].tolist() == ["the matrix is zero"]
    drift = table[table["probe"] == "subspace_drift"]
    assert drift["why_missing"].iloc[0] == "no checkpoint before this one"
    assert drift["value"].iloc[2] == pytest.approx(0, abs=1e-12)


def test_unknown_families_and_circuits_are_refused_by_name(tmp_path, reference):
    with pytest.raises(ValueError, match="linear-icl has no circuit 'mlp'; it has ov, qk, product"):
        probes.measure(reference, circuits=("mlp",))
    with RunWriter(tmp_path / "plain") as writer:
        writer.save(0, {"w": torch.ones(2, 2)})
    with pytest.raises(ValueError, match=r"no attention here: .* It holds w \(2, 2\)"):
        probes.measure(open_run(tmp_path / "plain"), circuits="ov")


def test_weights_that_are_not_finite_or_end_at_zero_cost_their_rows_and_not_the_table(tmp_path):
    with RunWriter(tmp_path / "run", family="linear-icl", circuits=CIRCUITS) as writer:
        for step in range(4):
            p2 = torch.diag(torch.tensor([1.0, 2.0, 0.0])) if step < 3 else torch.zeros(3, 3)
            writer.save(step, {"p2": p2 if step != 1 else torch.full((3, 3), torch.nan), "q1": torch.eye(3)})
    table = probes.measure(open_run(tmp_path / "run"), circuits="ov", audit=False)
    assert (table["value"].isna() == table["why_missing"].notna()).all()
    assert (table[table["step"] == 1]["why_missing"] == "the weights are not finite").all()
    drift = table[table["probe"] == "subspace_drift"]["why_missing"]
    assert drift.iloc[2] == "in the checkpoint it is compared with the weights are not finite"
    distance = table[table["probe"] == "subspace_distance"]["why_missing"]
    assert distance.iloc[0] == "in the checkpoint it is compared with the matrix is zero"


def test_circuits_of_ones_own_can_be_measured(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        for step in (0, 1):
            writer.save(step, {"w": torch.randn(2, 12, 5), "v": torch.randn(2, 5, 12)})
    run = open_run(tmp_path / "run")
    table = probes.measure(run, circuits={"wv": lambda t: probes.Factored(t["w"][None], t["v"][None])})
    assert sorted(table["head"].unique()) == [0, 1]
    rank = table[(table["step"] == 1) & (table["head"] == 1) & (table["probe"] == "effective_rank")]["value"].item()
    tensors = run.checkpoint(1)
    assert rank == pytest.approx(probes.effective_rank(tensors["w"][1] @ tensors["v"][1]).item(), rel=1e-6)
    last = table[(table["step"] == 1) & (table["probe"] == "subspace_distance")]["value"]
    np.testing.assert_allclose(last, 0, atol=1e-9)


def test_a_run_too_short_to_average_has_no_r2_of_its_loss(tmp_path):
    theory = PrintedTheory([1, 0.5], 64, 1e-3)
    section = {
        "time_per_step": 0.1,
        "mode_product": ["p", "q"],
        "mode_basis": [[1, 0], [0, 1]],
        "conserved": ["p", "q"],
    }
    with RunWriter(tmp_path / "run", theory=section | {"null": []}) as writer:
        for step in range(3):
            writer.log(step, loss=1.0)
            writer.save(step, {"p": torch.eye(2), "q": torch.eye(2)})
    assert np.isnan(probes.align(open_run(tmp_path / "run"), theory).loss_r2)
