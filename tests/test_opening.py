"""Every turn that a newcomer takes with a folder of checkpoints ends in a run, or in the call to make instead."""

import re
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import probes
from checkpoints import audit, open_run
from tests.small_gpt2 import state

HEADS = {"n_head": 2}


@pytest.fixture
def put(tmp_path):
    def write(*names: str, **beside) -> Path:
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            numbers = [int(number) for number in re.findall(r"\d+", name)]
            if path.suffix == ".safetensors":
                save_file(state(sum(numbers)), path)
            else:
                torch.save({"model": state(sum(numbers)), **beside} if beside else state(sum(numbers)), path)
        return tmp_path

    return write


def opened(path: Path, **settings):
    """The run and all that was said of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = open_run(path, **settings)
    assert tuple(str(warning.message) for warning in said) == run.notices
    return run, " ".join(run.notices)


def refused(path: Path, **settings) -> str:
    with pytest.raises((ValueError, OSError, TypeError)) as caught:
        open_run(path, **settings)
    assert "delete" not in str(caught.value).lower()
    assert "keep one" not in str(caught.value).lower()
    return str(caught.value).replace(str(path), "PATH")


def test_epochs_are_said_to_be_epochs_in_the_run_its_table_and_a_notice(put):
    run, said = opened(put("epoch_1.pth.tar", "epoch_2.pth.tar", "epoch_3.pth.tar"), config=HEADS)
    assert (run.steps, run.step_unit) == ([1, 2, 3], "epoch")
    assert "3 checkpoints, epochs 1 to 3" in repr(run)
    assert "are epochs and not updates" in said
    table = probes.measure(run, "ov", probes="norm")
    assert table.attrs["step_unit"] == "epoch"


def test_what_bare_numbers_count_is_asked_of_the_checkpoints(put):
    path = put("model_10.pth", "model_20.pth")
    assert open_run(path).step_unit == "number"
    for step in (10, 20):
        torch.save({"model": state(step), "global_step": step}, path / f"model_{step}.pth")
    assert open_run(path).step_unit == "step"
    for step in (10, 20):
        torch.save({"model": state(step), "epoch": step - 1, "global_step": step * 7}, path / f"model_{step}.pth")
    assert opened(path)[0].step_unit == "epoch"
    assert opened(path, steps="model_{step}.pth")[0].step_unit == "step"


def test_what_lies_beside_the_numbered_ones_is_left_out_by_name(put):
    run, said = opened(put("model_10.pth", "model_20.pth", "best.pth", "last.ckpt", "model_20-optim.pth"))
    assert run.steps == [10, 20]
    assert "left out, not among the numbered checkpoints of the run: best.pth, last.ckpt" in said
    assert "optim" not in said


def test_steps_by_a_pattern_an_expression_a_function_and_one_by_one(put):
    path = put("a_1_10.pt", "a_2_20.pt", "deep/er/b_5.pt")
    assert 'steps="a_{step}_*.pt") or open_run("PATH", steps="a_*_{step}.pt")' in refused(path)
    assert opened(path, steps="a_*_{step}.pt")[0].steps == [10, 20]
    run, said = opened(path, steps="a_{epoch}_*.pt")
    assert (run.steps, run.step_unit) == ([1, 2], "epoch")
    assert "epochs" in said
    assert opened(path, steps=r"a_\d_(\d+)")[0].steps == [10, 20]
    assert opened(path, steps=re.compile(r"(\d+)\.pt$"))[0].steps == [5, 10, 20]
    assert opened(path, steps="deep/*/b_{step}.pt")[0].steps == [5]
    assert opened(path, steps=lambda place: int(place.stem[-2:]) if place.stem[0] == "a" else None)[0].steps == [10, 20]
    run = open_run(path, steps={3: "a_1_10.pt", 8: path / "deep" / "er" / "b_5.pt"}, config=HEADS)
    assert run.steps == [3, 8]
    assert torch.equal(run[3]["transformer.wte.weight"], state(11)["transformer.wte.weight"])
    assert torch.equal(run[8]["transformer.wte.weight"], state(5)["transformer.wte.weight"])


def test_statements_of_steps_that_fit_nothing_say_what_was_expected(put):
    path = put("a_1.pt", "a_2.pt")
    assert "steps='c_{step}.pt' matches nothing; there is a_1.pt, a_2.pt" in refused(path, steps="c_{step}.pt")
    assert "has 0 groups. A pattern such as" in refused(path, steps="a_1")
    assert "has 2 groups" in refused(path, steps=r"(\d)(\d)")
    assert "is no regular expression" in refused(path, steps="a_(")
    assert "takes 'a' of a_1.pt for the step" in refused(path, steps="(a)_")
    assert "several placeholders" in refused(path, steps="{step}_{epoch}.pt")
    assert "None is expected for what is no checkpoint" in refused(path, steps=lambda place: int(place.stem))
    assert "a whole number is expected" in refused(path, steps=lambda place: 1.5)
    assert "0 or more is expected" in refused(path, steps={-1: "a_1.pt"})
    assert "b.pt does not exist" in refused(path, steps={1: "b.pt"})
    assert "is a file" in refused(path / "a_1.pt", steps={1: "b.pt"})
    assert "say revisions=" in refused(Path("hub:x"), steps="{step}")


def test_stages_on_a_disk_are_chosen_by_pattern_and_joined_on_one_axis(put):
    names = ["stage1-step10-tokens1B", "stage1-step20-tokens2B", "stage2-a1-step5-tokens1B", "stage2-a2-step5-tokens1B"]
    path = put(*(f"{name}/model.safetensors" for name in names))
    trunk, said = opened(path, config=HEADS)
    assert trunk.steps == [10, 20]
    assert f'alone: open_run("{path}", revisions="stage2-a2-*")' in said
    run, said = opened(path, revisions="stage1-*,stage2-a1-*", config=HEADS)
    assert "stage2-a1 counts anew, 20 is added" in said
    assert run.axis.drop(columns="label").to_numpy().tolist() == [
        [10, "stage1", 10, 10**9], [20, "stage1", 20, 2 * 10**9], [25, "stage2-a1", 5, 3 * 10**9],
    ]  # fmt: skip
    assert "(stage1, stage2-a1)" in repr(run)
    table = probes.measure(run, "ov", probes="norm")
    assert dict(zip(table["step"], table["stage"], strict=True)) == {10: "stage1", 20: "stage1", 25: "stage2-a1"}
    assert "is not a run that matches 'x*'" in refused(path, revisions="x*")


def test_a_recorded_step_is_compared_within_its_stage(tmp_path):
    for name, step in (("stage1-step10", 10), ("stage1-step20", 20), ("stage2-step5", 5), ("stage2-step9", 9)):
        torch.save({"model": state(step), "step": step}, tmp_path / f"{name}.pt")
    run, _ = opened(tmp_path, config=HEADS)
    assert run.steps == [10, 20, 25, 29]
    assert not [fault for fault in audit.audit(run).faults if fault.kind == "wrong_step"]
    torch.save({"model": state(9), "step": 8}, tmp_path / "stage2-step9.pt")
    wrong = [fault for fault in audit.audit(run).faults if fault.kind == "wrong_step"]
    assert [fault.step for fault in wrong] == [29]


def test_runs_that_lie_deeper_are_found_and_of_versions_the_latest(put):
    path = put(*(f"logs/version_{v}/checkpoints/epoch=0-step={10 + v}.ckpt" for v in (0, 2, 10)))
    run, said = opened(path)
    assert (run.steps, run.name) == ([20], path.name)
    assert "version_10/checkpoints is opened, the latest version" in said
    assert f'open_run("{path}/logs/version_2/checkpoints")' in said
    (path / "logs" / "version_10" / "config.json").write_text('{"model_type": "gpt2", "n_head": 2}')
    assert opened(path)[0].config["n_head"] == 2
    assert opened(path / "logs" / "version_0")[1] == ""


def test_several_runs_are_refused_with_the_call_for_each(put):
    path = put("seed_1/step1.pt", "seed_2/step1.pt", "x/a_1.pt", "x/a_2.pt", "x/b_1.pt", "x/b_2.pt")
    assert 'open_run("PATH", steps="a_{step}.pt") or open_run("PATH", steps="b_{step}.pt")' in refused(path / "x")
    assert opened(path / "x", revisions="b_*")[0].steps == [1, 2]
    (path / "x").rename(path.parent / "elsewhere")
    assert 'holds 2 runs, in seed_1, seed_2. Open one: open_run("PATH/seed_1") or' in refused(path)


def test_folders_of_several_checkpoints_each_are_not_taken_for_checkpoints(put):
    path = put("epoch_0/step_100.pt", "epoch_0/step_200.pt", "epoch_1/step_300.pt")
    assert 'open_run("PATH", steps="*/step_{step}.pt"), or open one: open_run("PATH/epoch_0")' in refused(path)
    assert opened(path, steps="*/step_{step}.pt")[0].steps == [100, 200, 300]


def test_parts_of_one_checkpoint_are_no_steps(put):
    path = put("consolidated.00.pth", "consolidated.01.pth")
    assert "several files of weights and nothing says which" in refused(path)


def test_wrong_turns_say_what_is_there_and_what_was_expected(put):
    path = put("models/encoder.pt", "models/decoder.pt")
    said = refused(path / "models")
    assert 'To open one: open_run("PATH/decoder.pt") or open_run("PATH/encoder.pt")' in said
    assert 'say the steps: open_run("PATH", steps={0: "decoder.pt", 1: "encoder.pt", ...})' in said
    (path / "empty").mkdir()
    assert "PATH is empty" in refused(path / "empty")
    (path / "empty" / "notes.txt").write_text("")
    assert "is no file of weights by its ending" in refused(path / "empty" / "notes.txt")
    assert "is not a run (it holds notes.txt). Looked for: " in refused(path / "empty")
    assert "PATH does not exist" in refused(path / "nowhere")


def test_one_checkpoint_alone_has_no_distance_to_itself_and_the_last_of_several_has_zero(put):
    path = put("step10.safetensors", "step20.safetensors")
    wanted = ["subspace_distance", "column_subspace_distance", "norm"]
    alone = probes.measure(open_run(path / "step10.safetensors", config=HEADS), "ov", probes=wanted).set_index("probe")
    for probe in wanted[:2]:
        assert alone.loc[probe, "value"].isna().all()
        assert set(alone.loc[probe, "why_missing"]) == {
            "step 10 is the only checkpoint: there is none to compare it with"
        }
    assert alone.loc["norm", "value"].notna().all()
    table = probes.measure(open_run(path, config=HEADS), "ov", probes=wanted).set_index(["probe", "step"])
    assert table.loc[("subspace_distance", 20), "value"].max() < 1e-6
    assert table.loc[("subspace_distance", 10), "value"].min() > 0.1
