"""Data flows one way: who writes runs and who reads them meet in `checkpoints` and nowhere else."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "checkpoints": set(),
    "probes": {"checkpoints"},
    "models": {"checkpoints"},
    "analyses": {"checkpoints", "probes", "models"},
}


def imported_rooms(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names & MAY_IMPORT.keys()


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_lies_before_it(room):
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for file in files:
        assert imported_rooms(file) <= MAY_IMPORT[room] | {room}, file


def test_importing_probes_is_quick_and_pulls_in_no_plotting_or_model_library():
    code = (
        "import time, sys, torch, pandas; start = time.perf_counter(); import probes; "
        "unwanted = {'matplotlib', 'transformer_lens', 'plotly', 'transformers', 'lightning'} & {*sys.modules}; "
        "print(time.perf_counter() - start, *unwanted)"
    )
    seconds = []
    for _ in range(3):  # the best of three: a busy machine is not the library's fault
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout.split()
        assert out[1:] == []
        seconds.append(float(out[0]))
    assert min(seconds) < 0.3
