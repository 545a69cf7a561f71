"""The small matrices behind the fast routes: the same products however they are cut into pieces and laid out."""

import pytest
import torch

from probes.matrices.grams import Grams, gathered, overlap, product, square


@pytest.fixture(autouse=True)
def one_torch_thread():
    """What makes NumPy the one that multiplies."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", [64, 24, 60, 63])  # in pieces of 16, of 8, and in one where neither divides
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_thin_product_in_pieces_is_the_product(rows, is_transposed):
    a, b = drawn(3, rows, 768), drawn(3, 768, 70)
    a = a.mT.contiguous().mT if is_transposed else a
    expected = torch.einsum("nij,njk->nik", a, b)
    torch.testing.assert_close(product(a, b), expected, rtol=1e-12, atol=1e-11)
    room = torch.full_like(expected, torch.nan)
    assert product(a, b, out=room) is room
    torch.testing.assert_close(room, expected, rtol=1e-12, atol=1e-11)
    squared = torch.empty(3, rows, rows, dtype=torch.float64)
    square(a, squared)
    torch.testing.assert_close(squared, a @ a.mT, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_parts_that_lie_in_memory_differently_are_one_stack(dtype):
    fused = drawn(40, 3, 5, 8).to(dtype)  # rows, part, head, inner: a head is spread over all of it
    query, key, value = fused.permute(1, 2, 0, 3)
    parts = (query, key.mT), (value, drawn(5, 8, 40).to(dtype))
    grams = Grams.of(*parts)
    left = torch.cat([part.double() for part, _ in parts])
    right = torch.cat([part.double() for _, part in parts])
    torch.testing.assert_close(grams.of_left.matrix, left.mT @ left)
    torch.testing.assert_close(grams.of_right.matrix, right @ right.mT)
    torch.testing.assert_close(grams.squared_norm, (left @ right).square().sum((-2, -1)))
    some = torch.arange(10) % 3 == 0
    torch.testing.assert_close(grams.at(some), (left[some], right[some]))
    other = Grams.of(*((b.mT, a.mT) for a, b in reversed(parts)))
    torch.testing.assert_close(overlap(grams, other.mT), right @ torch.cat((right[5:], right[:5])).mT)


@pytest.mark.parametrize("columns", [768, 1000, 241])  # in pieces of one size, with a shorter last one, and in one
def test_an_overlap_in_pieces_is_the_overlap(columns):
    first, second = drawn(6, columns, 64).float(), drawn(6, columns, 60).float()
    of, with_ = (Grams.of((drawn(6, 70, right.shape[-1]).float(), right.mT)) for right in (first, second))
    torch.testing.assert_close(overlap(of, with_), first.double().mT @ second.double(), rtol=1e-12, atol=1e-11)


def test_gathering_copies_only_what_is_spread_out():
    fused = drawn(40, 3, 5, 8)
    spread = fused.permute(1, 2, 0, 3)[1]
    for stack in (spread, spread.mT):
        dense = gathered(stack)
        assert torch.equal(dense, stack)
        assert dense.data_ptr() != stack.data_ptr()
        assert gathered(dense).data_ptr() == dense.data_ptr()
