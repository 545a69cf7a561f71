"""Names are read for what they count, and many names become one run on one axis, or are refused with the choices."""

from itertools import combinations

import pytest

from checkpoints.sources.names import bare_numbers, believed, counts_in, pattern_of, stage_in, step_in
from checkpoints.sources.sequence import matching, run_in_names


def names_of(*names: str):
    return run_in_names(names, lambda steps: f"steps={steps}", lambda revisions: f"revisions={revisions}")


def steps_of(*names: str) -> dict[str, int]:
    return {one.name: one.step for one in names_of(*names).placed}


@pytest.mark.parametrize(
    ("name", "unit", "number"),
    [
        ("step143000", "step", 143000),
        ("stage1-step1000-tokens4B", "step", 1000),
        ("epoch=2-step=1000.ckpt", "step", 1000),
        ("checkpoint-500", "number", 500),
        ("global_step_0000012", "step", 12),
        ("step_20k", "step", 20_000),
        ("step_1.5k.pt", "step", 1500),
        ("step2M", "step", 2_000_000),
        ("step_1e5.pt", "step", 100_000),
        ("ba1000", "step", 1000),
        ("ep0-ba1000-rank0.pt", "step", 1000),
        ("iter_0000100", "step", 100),
        ("step10-unsharded", "step", 10),
        ("checkpoint_1_10.pt", "step", 10),
        ("tokens4B", "token", 4_000_000_000),
        ("epoch_3.pth.tar", "epoch", 3),
        ("epoch=3-val_loss=0.25.ckpt", "epoch", 3),
    ],
)
def test_a_word_says_what_a_number_counts(name, unit, number):
    count = believed(counts_in(name))
    assert count is not None
    assert (count.unit, count.number) == (unit, number)
    assert step_in(name) == number


@pytest.mark.parametrize(
    "name", ["main", "footstep1", "model-00001-of-00002", "v2.1", "step", "stage2", "10", "step1.5.pt", "epoch_0.5"]
)
def test_names_without_such_a_word_claim_no_step(name):
    assert step_in(name) is None


def test_of_several_counts_in_a_name_the_one_nearest_to_updates_is_the_step():
    """Whatever comes first in the name: updates, then saves, then data seen."""
    order = ["step", "iteration", "iter", "checkpoint", "ckpt", "token", "epoch"]
    for first, other in combinations(order, 2):
        assert step_in(f"{first}12-{other}7") == 12, (first, other)
        assert step_in(f"{other}7-{first}12") == 12, (first, other)


def test_numbers_of_seeds_versions_and_decimals_count_nothing():
    assert [bare_numbers(name) for name in ("seed1", "run_2", "v3", "loss0.25", "expert-0", "a1b5")] == [[]] * 6
    assert [count.number for count in bare_numbers("model.10.pt")] == [10]
    assert [count.number for count in bare_numbers("vit_16-20k_0.5.pth.tar")] == [16, 20_000]


def test_names_alike_but_for_one_number_are_a_run():
    found = names_of("model_10.pth", "model_20.pth", "model_9.pth", "best.pth")
    assert [one.step for one in found.placed] == [9, 10, 20]
    assert (found.unit, found.left_out) == ("number", ("best.pth",))
    assert steps_of("vit-16-10.pt", "vit-16-20.pt") == {"vit-16-10.pt": 10, "vit-16-20.pt": 20}
    assert steps_of("resnet50.pt") == {}


def test_names_in_which_two_numbers_change_are_refused_with_both_readings():
    with pytest.raises(ValueError, match=r"2 numbers change .* steps=m_\{step\}_\*\.pt or steps=m_\*_\{step\}\.pt"):
        names_of("m_1_10.pt", "m_2_20.pt")


@pytest.mark.parametrize("word", ["_", "-step"])
def test_two_runs_in_one_folder_are_refused_with_a_call_for_each(word):
    with pytest.raises(ValueError, match=rf"steps=a{word}\{{step\}}\.pt or steps=b{word}\{{step\}}\.pt"):
        names_of(*(f"{run}{word}{step}.pt" for run in "ab" for step in (10, 20)))


def test_copies_marked_as_best_and_other_formats_of_the_same_are_left_out():
    found = names_of("step10.pt", "step20.pt", "step10.safetensors", "best-step10.pt", "epoch1.pt")
    assert [one.name for one in found.placed] == ["step10.safetensors", "step20.pt"]
    assert found.left_out == ("best-step10.pt", "epoch1.pt", "step10.pt")


def test_consecutive_stages_are_one_axis_in_steps_and_in_tokens():
    found = names_of(
        "stage1-step100-tokens5B", "stage1-step200-tokens10B", "stage2-step0-tokens0B", "stage2-step50-tokens2B"
    )
    assert [(one.step, one.stage, one.stage_step, one.tokens) for one in found.placed] == [
        (100, "stage1", 100, 5 * 10**9),
        (200, "stage1", 200, 10 * 10**9),
        (250, "stage2", 50, 12 * 10**9),
    ]
    assert "stage2 counts anew, 200 is added (stage2-step0-tokens0B is where the stage before ends" in found.notices[0]


def test_a_stage_that_counts_on_is_not_moved():
    found = names_of("stage1-step100", "stage2-step150")
    assert [(one.step, one.stage_step, one.tokens) for one in found.placed] == [(100, 100, None), (150, 150, None)]
    assert "stage2 counts on" in found.notices[0]


def test_of_branches_that_fork_only_the_trunk_is_opened_and_each_branch_is_named_with_its_pattern():
    names = ["stage1-step100", "stage2-a1-step10", "stage2-a2-step10", "stage3-step5", "main"]
    found = names_of(*names)
    assert [one.name for one in found.placed] == ["stage1-step100"]
    assert found.left_out == ("main",)
    for stage in ("stage2-a1", "stage2-a2", "stage3"):
        assert f"{stage}: revisions=stage1-*,{stage}-*, or alone: revisions={stage}-*" in found.notices[0]
    with_one = names_of(*matching(names, "stage1-*,stage2-a1-*"))
    assert [(one.step, one.stage) for one in with_one.placed] == [(100, "stage1"), (110, "stage2-a1")]
    alone = names_of(*matching(names, "stage2-a2-*"))
    assert [(one.step, one.stage) for one in alone.placed] == [(10, "stage2-a2")]
    with pytest.raises(ValueError, match=r"revisions=stage2-a1-\* or revisions=stage2-a2-\*"):
        names_of(*matching(names, "stage2-*"))


def test_a_stage_is_all_that_stands_before_the_count():
    stage = stage_in("stage2-ingredient1-step1000-tokens3B")
    assert stage is not None
    assert (stage.number, stage.text, stage.is_branch) == (2, "stage2-ingredient1", True)
    assert stage_in("step1000") is None
    assert pattern_of("a-step10-loss0.5.pt", counts_in("a-step10-loss0.5.pt")["step"]) == "a-step{step}-loss*.pt"
