"""Measuring whole runs: against the bare spectra and WeightWatcher, on one and two processes, and how it grows."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

import probes
from benchmarks.clock import beside_the_first, best_of_turns
from checkpoints import Heads, Run, open_run
from checkpoints.audit import audit
from probes.circuits import ov, qk
from probes.measuring.engines import Processes
from probes.threads import one_thread


def synthetic(path: Path, count: int, layers: int = 12, width: int = 768, heads: int = 12) -> Run:
    """Checkpoints of a GPT-2 shape on a random walk."""
    generator = torch.Generator().manual_seed(0)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": heads}))
    columns = {"c_attn": 3 * width, "c_proj": width}
    tensors = {
        f"h.{layer}.attn.{name}.weight": 0.02 * torch.randn(width, size, generator=generator)
        for layer in range(layers)
        for name, size in columns.items()
    }
    for number in range(count):
        tensors = {k: v + 0.005 * torch.randn(v.shape, generator=generator) for k, v in tensors.items()}
        save_file(tensors, path / f"step{100 * number}.safetensors")
    return open_run(path)


def run() -> None:
    """Print every comparison of this file, as ratios."""
    with tempfile.TemporaryDirectory() as folder, one_thread():
        _against_the_spectra(Path(folder))
        _against_weightwatcher(Path(folder))
        _growth(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        _processes(Path(folder))
        _memory(Path(folder))


def _against_the_spectra(folder: Path) -> None:
    """All routes go through the same checkpoints."""
    count = 8
    run = synthetic(folder / "spectra", count)
    steps = [(run.checkpoint(step), run.heads.layers) for step in run.steps]
    in_memory = [_in_one_piece(run.heads.read(checkpoint, layer)) for checkpoint, layers in steps for layer in layers]

    def spectra(layers: Iterable[Heads]) -> None:
        for heads in layers:
            probes.singular_values(ov(heads))
            probes.singular_values(qk(heads))

    found = beside_the_first(
        {
            "bare spectra, weights in memory": lambda: spectra(in_memory),
            "bare spectra, read from files": lambda: spectra(
                run.heads.read(checkpoint, layer) for checkpoint, layers in steps for layer in layers
            ),
            "measure, all probes": lambda: probes.measure(run, audit=False),
            "audit of the attention weights": lambda: audit(run, tensors="attention"),
        }
    )
    print("A GPT-2-small-shaped float32 checkpoint, OV and QK of 144 heads, one thread:")
    for what, (seconds, ratio) in found.items():
        print(f"  {what:<32} {1e3 * seconds / count:7.0f} ms {ratio:6.2f}x")


def _in_one_piece(heads: Heads) -> Heads:
    """Each head's matrices contiguous, not spread over a fused one: what the spectra are fastest on."""
    return replace(heads, W_Q=heads.W_Q.contiguous(), W_K=heads.W_K.contiguous(), W_V=heads.W_V.contiguous())


def _against_weightwatcher(folder: Path) -> None:
    try:
        import weightwatcher  # pyright: ignore[reportMissingImports]  # only `make bench` installs it
    except ImportError:
        print("\nWeightWatcher is not installed: `make bench` installs it.")
        return
    run = synthetic(folder / "weightwatcher", 2)
    layers = [run.heads.read(run.checkpoint(100), layer) for layer in run.heads.layers]
    stored = [m.reshape(-1, 768) for h in layers for m in (h.W_Q.mT, h.W_K.mT, h.W_V.mT, h.W_O)]
    circuits = [m for build in (ov, qk) for m in torch.as_tensor(build(layers[0]).dense()).float()]

    def analyze(matrices: list[torch.Tensor]) -> None:
        model = torch.nn.Sequential(*(torch.nn.Linear(768, 768, bias=False) for _ in matrices))
        for linear, matrix in zip(model, matrices, strict=True):
            linear.weight.data = matrix.contiguous()
        weightwatcher.WeightWatcher(model=model, log_level="ERROR").analyze()

    ours = min(_seconds(lambda: probes.measure(run, audit=False)) for _ in range(3)) / 2
    theirs = {"its 48 matrices as stored": _seconds(lambda: analyze(stored))}
    theirs["its 288 circuits (24 of them, times 12)"] = 12 * _seconds(lambda: analyze(circuits))
    print("\nThe attention weights of one GPT-2-small-shaped checkpoint:")
    print(f"  measure, 288 circuits                                {ours:7.2f} s    1x")
    for what, seconds in theirs.items():
        print(f"  WeightWatcher, {what:<38}{seconds:7.2f} s {seconds / ours:6.0f}x")


def _growth(folder: Path) -> None:
    print("\nGrowth (width 256, heads of 32, 4 layers, without audit):")
    for count in (5, 10, 20, 40):
        run = synthetic(folder / f"checkpoints{count}", count, layers=4, width=256, heads=8)
        seconds = min(_seconds(lambda run=run: probes.measure(run, audit=False)) for _ in range(2))
        print(f"  {count:3d} checkpoints of 8 heads: {1e3 * seconds / count:6.1f} ms per checkpoint")
    for heads in (4, 8, 16, 32):
        run = synthetic(folder / f"heads{heads}", 5, layers=2, width=32 * heads, heads=heads)
        seconds = min(_seconds(lambda run=run: probes.measure(run, audit=False)) for _ in range(2)) / 10
        per = 1e6 * seconds / heads / (32 * heads)
        label = f"{heads:3d} heads, width {32 * heads:4d}"
        print(f"  {label}: {1e3 * seconds / heads:6.2f} ms per head, {per:.2f} us per head and row")


def _processes(folder: Path) -> None:
    run = synthetic(folder / "processes", 24)
    seconds = best_of_turns(
        {
            "here": lambda: probes.measure(run, audit=False),
            "two": lambda: probes.measure(run, audit=False, engine=Processes(2)),
        },
        3,
    )
    print("\n24 GPT-2-small-shaped checkpoints:")
    print(f"  in this process  {seconds['here']:6.2f} s")
    print(f"  two processes    {seconds['two']:6.2f} s   {seconds['here'] / seconds['two']:.2f}x as fast")


_PEAK = """
import sys, probes
from checkpoints import open_run
from tests.memory import peak, reset_peak
probes.measure(open_run(sys.argv[1]), audit=False)
before = reset_peak()
probes.measure(open_run(sys.argv[2]), audit=False, resume_dir=sys.argv[3])
print(peak() - before)
"""


def _memory(folder: Path) -> None:
    synthetic(folder / "tiny", 2, layers=1, width=64, heads=2)
    print("\nPeak memory above that of a tiny run (GPT-2-small shape; one layer's attention weights are 9.4 MB):")
    for count in (4, 16):
        synthetic(folder / f"memory{count}", count)
        paths = [folder / "tiny", folder / f"memory{count}", folder / f"parts{count}"]
        out = subprocess.run([sys.executable, "-c", _PEAK, *paths], capture_output=True, text=True, check=True).stdout
        print(f"  {count:3d} checkpoints: {int(out) / 1e6:6.0f} MB")


def _seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start
