"""Data flows one way: between the packages, and from room to room inside `probes`."""

import subprocess
import sys

import pytest

from tests.import_graph import PACKAGES, ROOMS, ROOT, arrows, imported, is_backwards


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_lies_before_it(package):
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for file in files:
        packages = {module.split(".")[0] for module in imported(file)} & PACKAGES.keys()
        assert packages <= PACKAGES[package] | {package}, file


def test_a_room_of_probes_imports_only_rooms_before_it():
    found = list(arrows())
    assert len(found) > 50
    assert [(here, there, str(file)) for here, there, file in found if is_backwards(here, there)] == []


def test_the_order_of_the_rooms_is_read_as_it_is_meant():
    assert is_backwards("matrices", "series")
    assert is_backwards("measuring", "__init__")
    assert not is_backwards("monitor", "measuring")


def test_everything_in_probes_is_in_a_room():
    inside = {entry.stem for entry in (ROOT / "probes").iterdir() if entry.suffix == ".py" or entry.is_dir()}
    assert inside - {"__init__", "__pycache__"} <= {*ROOMS}


def test_importing_probes_is_quick_and_pulls_in_no_plotting_or_model_library():
    code = (
        "import time, sys; start = time.process_time(); import torch, pandas; theirs = time.process_time() - start; "
        "start = time.process_time(); import probes; [getattr(probes, name) for name in dir(probes)]; "
        "unwanted = {'matplotlib', 'transformer_lens', 'bokeh', 'transformers', 'lightning'} & {*sys.modules}; "
        "print((time.process_time() - start) / theirs, *unwanted)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    ratio, *unwanted = out.stdout.split()
    assert unwanted == []
    assert float(ratio) < 0.5  # of what torch and pandas take, measured side by side


def test_no_file_is_too_long_to_be_one_idea():
    packages = [*PACKAGES, "tests", "benchmarks"]
    lengths = {
        file: len(file.read_text().splitlines()) for package in packages for file in (ROOT / package).rglob("*.py")
    }
    too_long = {str(file.relative_to(ROOT)): length for file, length in lengths.items() if length > 350}
    assert not too_long, f"{too_long}: split each into two ideas, say a new file for what was added"
