"""Many trainers leave a folder called checkpoints: where Python takes it for our package, that is said at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WAYS = {
    "the package": ["-c", "import probes"],
    "a function": ["-c", "from probes import measure"],
    "the monitor": ["-c", "import probes; probes.Monitor"],
    "a module inside": ["-c", "from probes.circuits import circuits_of"],
    "the command line": ["-m", "probes", "list"],
}


def python(arguments: list[str], cwd: Path, path: Path = ROOT) -> subprocess.CompletedProcess:
    """Python started in a directory that comes first on sys.path, with ours after it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(("", str(path)))}  # "" is the current directory
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


def regular(folder: Path) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "__init__.py").write_text("raise SystemExit('somebody else is run')")
    return folder / "checkpoints"


@pytest.mark.parametrize("way", WAYS)
def test_somebody_elses_package_is_named_with_what_is_expected_and_what_to_do(tmp_path, way):
    found = regular(tmp_path)
    result = python(WAYS[way], tmp_path)
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: probes needs the package `checkpoints`")
    assert f"that is installed with it, {ROOT / 'checkpoints'}" in last
    assert f"`import checkpoints` finds {found}. If that is yours, rename it or start Python in another" in last


def test_a_module_of_that_name_is_named_too(tmp_path):
    (tmp_path / "checkpoints.py").write_text("def save(): ...")
    for code in ("import probes", "import checkpoints; import probes"):
        assert f"finds {tmp_path / 'checkpoints.py'}." in python(["-c", code], tmp_path).stderr


def test_a_module_that_somebody_made_up_is_not_taken_for_ours(tmp_path):
    made_up = "import sys, types; sys.modules['checkpoints'] = types.ModuleType('checkpoints'); import probes"
    assert "`import checkpoints` finds nothing" in python(["-c", made_up], tmp_path).stderr


@pytest.mark.slow
def test_a_folder_of_weights_does_no_harm_where_ours_is_installed(tmp_path):
    """Without an __init__.py it is a package only if there is no other."""
    (tmp_path / "checkpoints" / "step1000").mkdir(parents=True)
    result = python(["-c", "import probes, checkpoints; print(checkpoints.__file__, probes.measure)"], tmp_path)
    assert result.stdout.startswith(str(ROOT / "checkpoints" / "__init__.py")), result.stderr


def test_a_folder_of_weights_is_named_where_ours_is_missing(tmp_path):
    (tmp_path / "checkpoints" / "step1000").mkdir(parents=True)
    shutil.copytree(ROOT / "probes", tmp_path / "elsewhere" / "probes", ignore=shutil.ignore_patterns("__pycache__"))
    without_ours = (
        "import sys, pathlib\n"
        "sys.path[:] = [place for place in sys.path if not pathlib.Path(place, 'checkpoints', 'layout.py').exists()]\n"
        "import probes"
    )
    result = python(["-c", without_ours], tmp_path, tmp_path / "elsewhere")
    assert f"finds {tmp_path / 'checkpoints'}. If" in result.stderr
    assert "else install checkpoint-probes again" in result.stderr


@pytest.mark.slow
def test_a_link_to_ours_is_ours(tmp_path):
    (tmp_path / "linked").symlink_to(ROOT)
    result = python(["-c", "import probes; print(probes.measure)"], tmp_path, tmp_path / "linked")
    assert "function measure" in result.stdout, result.stderr
