"""Measuring a long run takes no more memory than measuring a short one."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from tests.walking_run import write_run

MEMORY = """
import sys
import probes
from checkpoints import Tensors, open_run
from tests.memory import peak, reset_peak
probes.measure(open_run(sys.argv[2]), audit=False, resume_dir=sys.argv[3] + "-first")
baseline = reset_peak()
names = ("norm", "subspace_distance", "subspace_drift")
probes.measure(open_run(sys.argv[1]), probes=names, audit=False, resume_dir=sys.argv[3])
print(peak() - baseline)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_checkpoints(tmp_path):
    """Width 512, 2 layers: one layer's attention is 4 MB. Only the rows of the table grow."""
    generator = torch.Generator().manual_seed(0)
    base = {
        f"h.{layer}.attn.{name}.weight": torch.randn(512, columns, generator=generator)
        for layer in range(2)
        for name, columns in (("c_attn", 1536), ("c_proj", 512))
    }
    small = write_run(tmp_path / "small", [0, 1])
    peaks = {}
    for count in (10, 80):
        path = tmp_path / f"run{count}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": 8}))
        for number in range(10):
            save_file({k: v + 0.05 * number for k, v in base.items()}, tmp_path / f"{count}-{number}.safetensors")
        for step in range(count):
            (path / f"step{step * 10}.safetensors").symlink_to(tmp_path / f"{count}-{step % 10}.safetensors")
        arguments = [
            sys.executable,
            "-c",
            MEMORY,
            path,
            small,
            tmp_path / f"p{count}",
        ]
        # what is freed is given back at once, so that the peak is what is held and not what the allocator keeps
        giving_back = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
        done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=giving_back)
        peaks[count] = int(done.stdout)
    layer = 4 * 512 * 512 * 4
    grams = 3 * 3 * (2 * 2 * 8) * 2 * 64 * 64 * 8  # of three checkpoints, each with factor and inverse; bounded
    assert peaks[80] < peaks[10] + 40e6  # the table and what it is read with; 70 checkpoints more are 590 MB
    assert layer < peaks[10] < 4 * layer + grams + 40e6  # and the blocks in hand
