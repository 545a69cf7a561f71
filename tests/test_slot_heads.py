"""Heads in a slot, read again and again: the numbers of reading them anew, to the last bit."""

import numpy as np
import pytest
import torch

from probes import Factored
from probes.measuring.layer_heads import LayerHeads
from probes.monitor.slot_heads import SlotHeads
from probes.threads import one_thread


def layouts() -> dict[str, list[Factored]]:
    """Factors as models store them: whole, cut out of one tensor, transposed, shared by several heads."""
    draw = torch.Generator().manual_seed(5)
    fused = torch.randn(24, 3 * 4 * 8, generator=draw)
    one, two, three = (part.unflatten(1, (4, 8)).transpose(0, 1) for part in fused.split(32, dim=1))
    whole = torch.randn(4, 8, 24, generator=draw)
    return {
        "whole": [Factored(torch.randn(4, 24, 8, generator=draw), whole)],
        "cut out": [Factored(one, two.mT), Factored(three, whole)],
        "shared": [Factored(one, whole[:1].expand(4, 8, 24))],
    }


@pytest.mark.parametrize("layout", layouts())
def test_they_are_those_of_reading_them_anew(layout):
    matrices = layouts()[layout]
    slot = SlotHeads(matrices)
    before: tuple[LayerHeads, LayerHeads] | None = None
    with one_thread():
        for step in range(4):
            heads, expected = slot.read(step), LayerHeads(*matrices, step=step)
            torch.testing.assert_close(heads.singular_values, expected.singular_values, rtol=0, atol=0)
            torch.testing.assert_close(heads.rank, expected.rank)
            assert (heads.step, heads.shape, heads.heads) == (step, expected.shape, expected.heads)
            assert (slot._template is not None) == (step >= 0)
            if before is not None:
                other = SlotHeads([Factored(one.left * 1.5, one.right + 0.1) for one in matrices])
                moved, wanted = other.read(0).moved_since(heads), other.read(0).moved_since(expected)
                for mine, theirs in zip(moved, wanted, strict=True):
                    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
            before = heads, expected
            for one in matrices:  # the next weights, in the same places
                one.left.mul_(1.1)
                one.left[0] += 0.01 * step


def test_weights_that_are_not_finite_are_read_as_everywhere():
    matrices = layouts()["whole"]
    slot = SlotHeads(matrices)
    with one_thread():
        slot.read(0)
        matrices[0].left[1, 0, 0] = torch.nan
        heads = slot.read(1)
        assert heads.missing_reason == [None, "the weights are not finite", None, None]
        matrices[0].left[1, 0, 0] = 1.0
        assert slot.read(2).missing_reason == [None] * 4


def test_other_kinds_of_matrices_are_read_as_everywhere():
    dense = torch.randn(3, 5, 6, dtype=torch.float64)
    np.testing.assert_array_equal(SlotHeads([dense]).read(7).singular_values, LayerHeads(dense).singular_values)
    half = Factored(torch.randn(2, 12, 3).bfloat16(), torch.randn(2, 3, 12).bfloat16())
    np.testing.assert_array_equal(SlotHeads([half]).read(7).singular_values, LayerHeads(half).singular_values)
