"""What type checkers are told about the public maths: pyright is asked."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_overloads

import pytest

import probes
from tests.import_graph import ROOT

CLAIMS = Path(__file__).with_name("typed_maths.py")


def errors_of_pyright(file: Path) -> list[int]:
    """Lines of a file that pyright finds fault with, having read it."""
    call = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(file)]
    out = json.loads(subprocess.run(call, capture_output=True, text=True, cwd=ROOT).stdout)
    assert out["summary"]["filesAnalyzed"] == 1
    return [1 + found["range"]["start"]["line"] for found in out["generalDiagnostics"] if found["severity"] == "error"]


@pytest.mark.slow
def test_pyright_sees_the_kind_that_comes_out():
    assert errors_of_pyright(CLAIMS) == []


@pytest.mark.slow
def test_pyright_would_see_every_one_of_these_claims_fail(tmp_path):
    lines = CLAIMS.read_text().splitlines()
    claims = [i for i, line in enumerate(lines, start=1) if line.startswith("    assert_type(")]
    assert len(claims) > 60
    for i in claims:
        lines[i - 1] = lines[i - 1].rsplit(", ", 1)[0] + ", complex)"
    wrong = tmp_path / "wrong.py"
    wrong.write_text("\n".join(lines))
    assert errors_of_pyright(wrong) == claims


def public_maths() -> list:
    found = [getattr(probes, name) for name in probes.__all__]
    return [f for f in found if inspect.isfunction(f) and f.__module__.split(".")[1] in ("matrices", "series")]


@pytest.mark.parametrize("function", public_maths(), ids=lambda function: function.__name__)
def test_no_public_function_takes_or_returns_just_anything(function):
    for signature in get_overloads(function) or [function]:
        annotations = dict(signature.__annotations__)
        assert "return" in annotations
        assert len(annotations) == len(inspect.signature(signature).parameters) + 1
        assert Any not in annotations.values(), signature


def test_most_of_the_maths_is_looked_at():
    assert len(public_maths()) > 30


@pytest.mark.parametrize("package", ["probes", "checkpoints"])
def test_the_packages_say_that_they_are_typed(package):
    assert (ROOT / package / "py.typed").exists()
