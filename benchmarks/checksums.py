"""What comparing every record of a .pt file with its checksum adds to the CPU time of `measure`."""

import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

import probes
from checkpoints import Run, open_run
from checkpoints.files.zip_archive import ZipArchive
from probes.threads import one_thread


def saved(path: Path, count: int, layers: int, width: int, heads: int) -> Run:
    """Checkpoints of a GPT-2 shape in files of torch.save."""
    generator = torch.Generator().manual_seed(0)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": heads}))
    for number in range(count):
        tensors = {
            f"h.{layer}.attn.{name}.weight": 0.02 * torch.randn(width, size, generator=generator)
            for layer in range(layers)
            for name, size in (("c_attn", 3 * width), ("c_proj", width))
        }
        torch.save(tensors, path / f"step{100 * number}.pt")
    return open_run(path)


def cost(run: Run, rounds: int = 7, **how: Any) -> float:
    """Median over the rounds of the CPU time with all checksums over that without any, less one."""
    ratios = []
    for number in range(rounds + 1):
        checked = _seconds(run, **how)
        with patch.object(ZipArchive, "_check", lambda *_: None):
            unchecked = _seconds(run, **how)
        if number:  # the first round sets up thread pools and memory
            ratios.append(checked / unchecked)
    return median(ratios) - 1


def _seconds(run: Run, **how: Any) -> float:
    began = time.process_time()
    probes.measure(run, audit=False, **how)
    return time.process_time() - began


def run() -> None:
    """Print the share for a small and a large layer, with all probes and with the cheapest."""
    print("comparing checksums of .pt files in measure, share of the CPU time added")
    with tempfile.TemporaryDirectory() as folder, one_thread():
        for width, heads in ((256, 4), (768, 12), (1536, 12)):
            checkpoints = saved(Path(folder) / str(width), 2, 2, width, heads)
            whole, norm = cost(checkpoints), cost(checkpoints, probes="norm")
            print(f"  d_model {width:5d}: {whole:+.1%} with all probes, {norm:+.1%} with the norm alone")


if __name__ == "__main__":
    run()
