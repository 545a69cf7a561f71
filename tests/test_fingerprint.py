"""A tensor's fingerprint: a digest that every bit changes, and a sketch that keeps distances."""

import numpy as np
import pytest
import torch

from checkpoints.audit.fingerprint import fingerprint


@pytest.mark.parametrize("size", [100, 70_000, 2**20 + 77, 3 * 2**20])
def test_distances_of_sketches_are_distances_of_tensors(size):
    generator = torch.Generator().manual_seed(size)
    a, b = (torch.randn(size, generator=generator) for _ in range(2))
    ratios = [
        np.linalg.norm(fingerprint(a).sketch - fingerprint(a + scale * b).sketch) / (scale * float(b.norm()))
        for scale in (1.0, 1e-2)
    ]
    assert ratios == pytest.approx([1, 1], abs=0.3)  # 1 / sqrt(128) is one standard deviation


def test_the_sketch_does_not_confuse_what_repeats_from_chunk_to_chunk():
    """Equal chunks with opposite signs differ by much; a sketch with the same signs in every chunk could not tell."""
    chunk = torch.randn(2**20, generator=torch.Generator().manual_seed(0))
    size = float(chunk.norm()) * 2**0.5
    for tensor in (torch.cat([chunk, chunk]), torch.cat([chunk, -chunk])):
        assert np.linalg.norm(fingerprint(tensor).sketch) == pytest.approx(size, rel=0.3)


def test_one_bit_changes_the_digest_and_layout_in_memory_does_not():
    tensor = torch.randn(40, 30)
    changed = tensor.clone()
    changed[3, 4] = torch.nextafter(changed[3, 4], torch.tensor(torch.inf))
    assert fingerprint(tensor).digest != fingerprint(changed).digest
    assert fingerprint(tensor.T.contiguous().T).digest == fingerprint(tensor).digest
