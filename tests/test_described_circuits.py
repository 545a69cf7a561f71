"""A run says what its circuits are, as data: the right matrices come out of it, and nonsense is refused by name."""

import json
import pickle
from functools import partial

import pandas as pd
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
from checkpoints.circuits import described_circuit
from models.depth_and_context.attention import AttentionConfig, LinearAttention
from models.depth_and_context.model import DepthConfig, ReducedGamma
from models.linear_icl.model import LinearICL, LinearICLConfig
from models.merged_weights.model import MergedWeights, MergedWeightsConfig
from models.multi_head.model import MultiHead, MultiHeadConfig
from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig
from models.training import train
from probes import Factored
from probes.circuits import circuits_of, default_circuits
from probes.monitor.adaptive import AdaptiveCheckpoints

MATRIX = {"tensors": ["w"], "pattern": "row column -> 1 1 row column"}


def read(description, **tensors):
    parts = described_circuit(description, "here").read({name: torch.tensor(t) for name, t in tensors.items()})
    return [part.tolist() for part in parts]


# --- numbers done by hand


def test_one_tensor_is_put_in_order():
    assert read(MATRIX, w=[[1.0, 2], [3, 4]]) == [[[[[1, 2], [3, 4]]]]]
    turned = {"tensors": ["w"], "pattern": "column layer row -> layer 1 row column"}
    assert read(turned, w=[[[1.0, 2], [3, 4]]]) == [[[[[1], [2]]], [[[3], [4]]]]]
    joined = {"tensors": ["w"], "pattern": "a b c -> 1 1 c (a b)"}
    assert read(joined, w=[[[1.0], [2]], [[3], [4]]]) == [[[[[1, 2, 3, 4]]]]]


def test_two_tensors_are_multiplied_and_what_does_not_come_out_is_summed():
    product = {"tensors": ["a", "b"], "pattern": "row inner, inner column -> 1 1 row column"}
    assert read(product, a=[[1.0, 2], [3, 4]], b=[[1.0, 0], [1, 1]]) == [[[[[3, 2], [7, 4]]]]]
    by_head = {"tensors": ["v", "k"], "pattern": "head, head row -> 1 head row 1"}
    assert read(by_head, v=[2.0, 3.0], k=[[1.0, 2], [3, 4]]) == [[[[[2], [4]], [[9], [12]]]]]
    number = {"tensors": ["u", "w"], "pattern": ", row column -> 1 1 row column"}
    assert read(number, u=2.0, w=[[1.0, 2]]) == [[[[[2, 4]]]]]


def test_products_are_made_in_float64_whatever_is_stored():
    small = torch.tensor([1 / 3], dtype=torch.bfloat16)
    square = described_circuit({"tensors": ["w", "w"], "pattern": "i, i -> 1 1 i 1"}, "here").read({"w": small})[0]
    assert square.dtype == torch.float64
    assert square.item() == small.double().item() ** 2


def test_an_axis_that_is_rows_and_columns_is_a_diagonal_and_blocks_stand_beside_or_above_each_other():
    diagonal = {"tensors": ["v"], "pattern": "task part -> 1 1 task task", "at": {"part": 0}}
    column = {"tensors": ["v"], "pattern": "task part -> 1 1 task 1", "at": {"part": 1}}
    row = {"tensors": ["v"], "pattern": "task part -> 1 1 1 task", "at": {"part": 1}}
    v = [[1.0, 2], [3, 4]]
    assert read({"beside": [diagonal, column]}, v=v) == [[[[[1, 0, 2], [0, 3, 4]]]]]
    assert read({"above": [diagonal, row]}, v=v) == [[[[[1, 0], [0, 3], [2, 4]]]]]


def test_a_product_keeps_its_factors(tmp_path):
    with RunWriter(tmp_path / "run", circuits={"both": {"left": MATRIX, "right": MATRIX}}) as writer:
        writer.save(0, {"w": torch.tensor([[0.0, 1], [2, 0]])})
    run = open_run(tmp_path / "run")
    matrix = circuits_of(run, ("both",))["both"].read(run.checkpoint(0), 0)
    assert isinstance(matrix, Factored)
    assert matrix.dense().tolist() == [[[2, 0], [0, 2]]]


# --- the solvable models, against functions written out


def _feature_and_target(active):
    return torch.cat((torch.diag(active[:, 0]), active[:, 1:]), 1)


WRITTEN_OUT = {
    "linear-icl": {
        "ov": lambda t: t["p2"][None, None],
        "qk": lambda t: t["q1"][None, None],
        "product": lambda t: Factored(t["p2"][None, None], t["q1"][None, None]),
    },
    "multi-head": {
        "qk": lambda t: Factored(t["key"].mT[None], t["query"][None]),
        "product": lambda t: Factored(
            (t["value"][:, None, None] * t["key"]).flatten(0, 1).mT[None, None],
            t["query"].flatten(0, 1)[None, None],
        ),
    },
    "merged-weights": {
        "qk": lambda t: t["key_query"][None, None],
        "product": lambda t: (t["value"] * t["key_query"])[None, None],
    },
    "depth-and-context": {"gamma": lambda t: t["gamma"][:, None]},
    "depth-and-context-attention": {
        "ov": lambda t: t["w_v"][None, None],
        "qk": lambda t: (t["w_k"].mT @ t["w_q"])[None, None],
    },
    "multitask-sparse": {
        "ov": lambda t: _feature_and_target(t["v"])[None, None],
        "qk": lambda t: _feature_and_target(t["w"]).mT[None, None],
    },
}
SOLVABLE = {
    "linear-icl": partial(LinearICL, LinearICLConfig(batch=4, tasks=8)),
    "multi-head": partial(MultiHead, MultiHeadConfig(batch=4)),
    "merged-weights": partial(MergedWeights, MergedWeightsConfig(batch=4)),
    "depth-and-context": partial(ReducedGamma, DepthConfig(dimension=6, depth=3, untied=True, batch=4)),
    "depth-and-context-attention": partial(LinearAttention, AttentionConfig(dimension=6, batch=4)),
    "multitask-sparse": partial(MultitaskAttention, MultitaskConfig(tasks=5)),
}


@pytest.fixture(scope="module", params=WRITTEN_OUT)
def solvable(request, tmp_path_factory):
    path = train(SOLVABLE[request.param], [0], tmp_path_factory.mktemp("runs"), "tiny", 6, (0, 3, 6), quiet=True)[0]
    return open_run(path)


def test_a_solvable_model_describes_the_matrices_of_its_paper(solvable):
    assert (solvable.circuits or {}).keys() == WRITTEN_OUT[solvable.family].keys()
    described = circuits_of(solvable, solvable.circuits)
    for name, build in WRITTEN_OUT[solvable.family].items():
        checkpoint = solvable.checkpoint(6)
        expected = build(checkpoint)
        assert described[name].layers == tuple(range(expected.shape[0]))
        for layer in described[name].layers:
            found = described[name].read(checkpoint, layer)
            if isinstance(expected, Factored):  # nothing is multiplied: bit for bit
                assert torch.equal(found.left, expected[layer].left)
                assert torch.equal(found.right, expected[layer].right)
            else:  # in which order a product is added up is up to the processor
                torch.testing.assert_close(found, expected[layer], rtol=0, atol=1e-15 * float(expected.abs().max()))


def test_a_solvable_model_is_measured_as_with_the_functions(solvable):
    names = default_circuits(solvable)
    expected = probes.measure(solvable, {name: WRITTEN_OUT[solvable.family][name] for name in names}, audit=False)
    for circuits in (None, names, {name: solvable.circuits[name] for name in names}):
        # the matrices are the same to rounding, a distance between two of them to rounding of the matrices
        pd.testing.assert_frame_equal(probes.measure(solvable, circuits, audit=False), expected, rtol=1e-9, atol=1e-14)


def test_ov_and_qk_are_the_default_where_there_are_any_and_else_all(solvable):
    expected = {"multi-head": ("qk",), "merged-weights": ("qk",), "depth-and-context": ("gamma",)}
    assert default_circuits(solvable) == expected.get(solvable.family, ("ov", "qk"))


def test_described_circuits_travel_to_other_processes(solvable):
    described = circuits_of(solvable, default_circuits(solvable))
    assert pickle.loads(pickle.dumps(described)) == described


# --- what is refused

REFUSED = {
    "a list": ([1], r"\[1\] is not a description\. Expected is {\"tensors\""),
    "code": ("__import__('os')", "is not a description"),
    "another key": ({**MATRIX, "dtype": "float16"}, "is not a description"),
    "half a product": ({"left": MATRIX}, "is not a description"),
    "no pattern": ({"tensors": ["w"]}, "is not a description"),
    "an unknown tensor": ({**MATRIX, "tensors": ["w_q"]}, "there is no tensor 'w_q'; there are v, w, x"),
    "three tensors": ({**MATRIX, "tensors": ["w"] * 3}, '"tensors" is .* one or two names'),
    "a name": ({**MATRIX, "tensors": "w"}, '"tensors" is .* one or two names'),
    "a number for a pattern": ({**MATRIX, "pattern": 4}, "axes, axes -> layer head rows columns"),
    "no arrow": ({**MATRIX, "pattern": "row column"}, "axes, axes -> layer head rows columns"),
    "three axes": ({**MATRIX, "pattern": "a b -> 1 a b"}, "3 axes come out, four are expected"),
    "five axes": ({**MATRIX, "pattern": "a b -> 1 1 1 a b"}, "5 axes come out, four are expected"),
    "a bracket left open": ({**MATRIX, "pattern": "a b -> 1 1 1 (a b"}, "6 axes come out"),
    "empty brackets": ({**MATRIX, "pattern": "a b -> () 1 a b"}, "an axis of length 1 is written 1"),
    "a sum": ({**MATRIX, "pattern": "a b -> 1 1 a+0 b"}, r"'a\+0' cannot be the name of an axis"),
    "a length": ({**MATRIX, "pattern": "a b -> 1 1000000000 a b"}, "'1000000000' cannot be the name"),
    "an ellipsis": ({**MATRIX, "pattern": "... -> 1 1 1 ..."}, r"'\.\.\.' cannot be the name"),
    "an axis from nowhere": ({**MATRIX, "pattern": "a b -> 1 c a b"}, "there is no axis 'c' before the arrow"),
    "a lost axis": ({**MATRIX, "pattern": "a b -> 1 1 1 a"}, "'b' is lost: let it come out"),
    "an axis twice": ({**MATRIX, "pattern": "a b -> a 1 a b"}, "comes out twice"),
    "a trace": ({**MATRIX, "pattern": "a a -> 1 1 1 a"}, "stands twice in one tensor"),
    "two for one": ({**MATRIX, "pattern": "a b, b -> 1 1 a b"}, "2 tensors before the arrow, there are 1"),
    "a wrong number of axes": ({**MATRIX, "pattern": "a -> 1 1 a 1"}, r"'w' is \(2, 2\), the pattern names 1 axes"),
    "a wrong length": (
        {"tensors": ["w", "x"], "pattern": "a b, b -> 1 1 a 1"},
        r"'b' is 2 long, in 'x' \(3,\) it is 3",
    ),
    "a place beyond the end": (
        {**MATRIX, "pattern": "a b -> 1 1 a 1", "at": {"b": 2}},
        '"at" takes b 2, of which there are 2',
    ),
    "a negative place": ({**MATRIX, "at": {"row": -1}}, "places from 0 on"),
    "a place and the axis": ({**MATRIX, "at": {"row": 0}}, "one place is taken"),
    "a place nowhere": ({**MATRIX, "at": {"layer": 0}}, "there is no axis 'layer'"),
    "one block": ({"beside": [MATRIX]}, "at least two"),
    "blocks in blocks": ({"beside": [MATRIX, {"above": [MATRIX, MATRIX]}]}, "beside 1: .* is not a description"),
    "blocks that do not fit": (
        {"beside": [MATRIX, {"tensors": ["x"], "pattern": "a -> 1 1 a 1"}]},
        r"\(1, 1, 2, 2\), \(1, 1, 3, 1\) do not fit beside",
    ),
    "factors that do not fit": (
        {"left": MATRIX, "right": {"tensors": ["x"], "pattern": "a -> 1 1 a 1"}},
        r"left is \(1, 1, 2, 2\) and right \(1, 1, 3, 1\): \[layer, head, rows, inner\]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_description_that_makes_no_sense_is_refused_with_the_run_the_circuit_and_what_is_expected(tmp_path, case):
    description, message = REFUSED[case]
    with RunWriter(tmp_path / "run", circuits={"mine": MATRIX}) as writer:
        writer.save(0, {"w": torch.ones(2, 2), "x": torch.ones(3), "v": torch.ones(2)})
    file = tmp_path / "run" / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"circuits": {"mine": description}}))
    run = open_run(tmp_path / "run")  # its metrics and its weights can still be read
    with pytest.raises(ValueError, match=rf"run 'run' \(.*{tmp_path.name}/run\), circuit 'mine'.*{message}"):
        probes.measure(run)
    if isinstance(description, dict):
        with pytest.raises(ValueError, match=f"circuits, 'other'.*{message}"):
            probes.measure(run, {"other": description})


def test_nothing_large_is_made_of_something_small(tmp_path):
    long = {"tensors": ["x", "x"], "pattern": "row, column -> 1 1 row column"}
    circuits = {
        "outer": {"tensors": ["x", "y"], "pattern": "row, column -> 1 1 row column"},
        "diagonal": {"tensors": ["x"], "pattern": "row -> 1 1 row row"},
        "blocks": {"beside": [{"tensors": ["y"], "pattern": "row -> 1 1 row row"}] * 10},
    }
    with RunWriter(tmp_path / "run", circuits=circuits) as writer:
        writer.save(0, {"x": torch.ones(100_000), "y": torch.ones(5_000)})
    run = open_run(tmp_path / "run")
    for name in circuits:
        with pytest.raises(ValueError, match=rf"circuit '{name}': it would hold \d+ numbers, at most 134217728"):
            probes.measure(run, name)
    with pytest.raises(ValueError, match="it would hold 10000000000 numbers"):
        described_circuit(long, "here").read({"x": torch.ones(100_000)})


def test_a_circuit_that_a_run_does_not_describe_is_refused_with_those_it_does(solvable):
    known = ", ".join(solvable.circuits)
    with pytest.raises(ValueError, match=f"{solvable.family} has no circuit 'mlp'; it has {known}"):
        probes.measure(solvable, "mlp")


def test_circuits_that_are_no_table_are_refused_when_the_run_is_opened(tmp_path):
    RunWriter(tmp_path / "run").close()
    file = tmp_path / "run" / "run.json"
    for circuits in ("ov", [], {}, 3):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"circuits": circuits}))
        with pytest.raises(ValueError, match=r'run\.json: "circuits" is .*descriptions by name or null'):
            open_run(tmp_path / "run")


def test_a_wrong_description_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"run, circuit 'ov', pattern 'a -> a': 1 axes come out"):
        RunWriter(tmp_path / "run", circuits={"ov": {"tensors": ["w"], "pattern": "a -> a"}})
    assert not (tmp_path / "run").exists()


def test_a_run_is_resumed_only_with_the_circuits_it_has(tmp_path):
    RunWriter(tmp_path / "run", circuits={"ov": MATRIX}).close()
    RunWriter(tmp_path / "run", circuits={"ov": MATRIX}, resume=True).close()
    for circuits in (None, {"qk": MATRIX}):
        with pytest.raises(ValueError, match=r"run\.json has other circuits, so this would not be the same run"):
            RunWriter(tmp_path / "run", circuits=circuits, resume=True)


def test_a_run_that_does_not_say_is_told_how_to_say_it(tmp_path):
    with RunWriter(tmp_path / "run", family="linear-icl") as writer:
        writer.save(0, {"p2": torch.eye(2), "q1": torch.eye(2)})
    file = tmp_path / "run" / "run.json"
    older = json.loads(file.read_text())
    del older["circuits"]
    file.write_text(json.dumps(older))
    run = open_run(tmp_path / "run")
    assert run.circuits is None
    with pytest.raises(ValueError, match=r"measure\(run, circuits={\"mine\": {.*older than that: train it again"):
        probes.measure(run, circuits=("ov", "qk"))
    with pytest.warns(UserWarning, match="no attention here; measured are its matrices p2, q1"):
        assert {*probes.measure(run)["circuit"]} == {"p2", "q1"}
    assert len(probes.measure(run, {"qk": {"tensors": ["q1"], "pattern": "a b -> 1 1 a b"}}, audit=False)) > 0


def test_a_checkpoint_that_lost_a_tensor_costs_its_rows_and_says_which(tmp_path):
    with RunWriter(tmp_path / "run", circuits={"ov": MATRIX}) as writer:
        for step in (0, 1, 2):
            writer.save(step, {"w" if step != 1 else "other": torch.eye(2) * (step + 1)})
    table = probes.measure(open_run(tmp_path / "run"), probes=["norm"], audit=False).set_index("step")
    assert table.loc[[0, 2], "value"].notna().all()
    assert "circuit 'ov': there is no tensor 'w'; there are other" in table.loc[1, "why_missing"]


# --- live


def test_a_monitor_takes_descriptions_and_what_it_saves_keeps_them(tmp_path):
    weights = {"w": torch.eye(3)}
    settings = {"probes": ["norm"], "budget": 1.0, "checkpoints": AdaptiveCheckpoints(tmp_path / "run")}
    with probes.Monitor(lambda: weights, circuits={"mine": MATRIX}, **settings) as monitor:
        for step in range(3):
            weights["w"] = torch.eye(3) * (step + 1)
            monitor.step(loss=1.0)
    assert monitor.failure is None
    assert set(monitor.table["circuit"]) == {"mine"}
    assert open_run(tmp_path / "run").circuits == {"mine": MATRIX}
