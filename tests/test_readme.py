"""The README can be followed: its Python runs and prints what it says, its commands parse, its names and links exist.

Blocks of Python run from top to bottom in one namespace, in a folder that is laid out as they name it; what is the
reader's own (model, data, update, evaluate) is small. A comment behind a line that begins with numbers, a shape or a
string is what the line must give, to the digits printed; so are the rows of a table in comments below it. A block that
cannot be run is preceded by `<!-- not run: why -->` and only compiled. A block without a language holds commands, which
are parsed and not run. `pytest -rP tests/test_readme.py` lists what was done with every block.

Commands, links and paths in CONTRIBUTING are held to the same.
"""

import ast
import io
import json
import re
import shlex
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import typer
import yaml
from safetensors.torch import save

import analyses.__main__
import models.__main__
import probes
import probes.__main__
from analyses.registry import chosen_pages
from checkpoints.hub import Hub
from probes.measuring.engines import engine_named
from tests import small_gpt2
from tests.hub_server import HubServer, serving

ROOT = Path(__file__).parents[1]
README, CONTRIBUTING = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
_BLOCK = re.compile(r"(?:^<!-- not run: (?P<why>.+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


@dataclass(frozen=True)
class Block:
    """A fenced block, the line it begins at, and why it is not run, if it says so."""

    line: int
    language: str
    code: str
    why_not_run: str | None

    @property
    def fate(self) -> str:
        if self.why_not_run:
            return f"not run: {self.why_not_run}"
        return {"python": "run", "": "commands parsed"}.get(self.language, "")


def blocks(text: str) -> list[Block]:
    return [
        Block(text[: match.start("code")].count("\n") + 1, match["language"], match["code"], match["why"])
        for match in _BLOCK.finditer(text)
    ]


def test_every_block_is_run_or_parsed_or_says_why_not():
    for name, text in (("README.md", README), ("CONTRIBUTING.md", CONTRIBUTING)):
        assert text.count("\n```") == 2 * len(blocks(text)), f"{name} has a block that this test does not see"
        for block in blocks(text):
            print(f"{name}, line {block.line}: {block.fate}")  # noqa: T201
            assert block.fate, f"{name}, line {block.line}: a block of {block.language} is neither run nor marked"
    kinds = [block.fate for block in blocks(README)]
    assert kinds.count("run") >= 8
    assert kinds.count("commands parsed") >= 3


# Python


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder with all that the README opens, as somebody would have it; and a hub that serves what it names."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "reference").symlink_to(ROOT / "checkpoints" / "reference")
    for place in ("output/checkpoint-500", "output/checkpoint-1000", "ckpts/step1000", "ckpts/step2000", "llama"):
        small_gpt2.sharded(tmp_path / place, small_gpt2.state())
    torch.save({"model": small_gpt2.state(), "iter_num": 7}, tmp_path / "ckpt.pt")
    published = {
        "config.json": json.dumps(small_gpt2.CONFIG.to_dict()).encode(),
        "model.safetensors": save(small_gpt2.state()),
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(HubServer("EleutherAI/pythia-70m", {"step0": published, "step512": published})) as address:
        monkeypatch.setattr("checkpoints.sources.hub.Hub", partial(Hub, address))
        yield tmp_path


def readers_own() -> dict[str, Any]:
    """A model and what is done with it: the four names that the README leaves to its reader."""
    model = small_gpt2.model()
    model.proj = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def update(model, batch=None):
        loss = model.proj(torch.ones(64) if batch is None else batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    data = [torch.ones(64)] * 20
    return {"model": model, "data": data, "update": update, "evaluate": lambda model: float(update(model))}


@pytest.mark.slow
def test_the_python_runs_from_top_to_bottom_and_gives_what_its_comments_say(folder):
    namespace, compared = readers_own(), []
    for block in blocks(README):
        if block.language == "python" and block.why_not_run:
            compile(block.code, f"README.md, line {block.line}", "exec")
        elif block.language == "python":
            for line, value, comment, below in statements(block, namespace):
                compared += compare(value, comment, f"README.md, line {line}") + compare_table(value, below, line)
    assert len(compared) > 40  # else it is this test that no longer sees what is printed


def statements(block: Block, namespace: dict[str, Any]) -> Iterator[tuple[int, Any, str, list[str]]]:
    """Run a block statement by statement: line, value, the comment behind it, and those on the lines below it."""
    comments = {
        token.start[0]: (token.string.removeprefix("#").strip(), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(block.code).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.parse(block.code).body:
        line, source = block.line + node.lineno, ast.get_source_segment(block.code, node) or ""
        try:
            if isinstance(node, ast.Expr):
                value = eval(source, namespace)
            else:
                exec(source, namespace)
                value = namespace[node.targets[0].id] if _names_one(node) else None
        except Exception as error:
            raise AssertionError(f"README.md, line {line}: {source}\n{type(error).__name__}: {error}") from error
        last, below = node.end_lineno or node.lineno, []
        while comments.get(last + 1 + len(below), ("", False))[1]:
            below.append(comments[last + 1 + len(below)][0])
        yield line, value, comments.get(last, ("", False))[0], below


def _names_one(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)


def compare(value: Any, comment: str, where: str) -> list[str]:
    """The numbers, shape or string that a comment begins with are those of the value; what was compared."""
    if shape := re.match(r"\[\d+(?:, \d+)*\]", comment):
        assert list(value.shape) == json.loads(shape[0]), f"{where}: the shape is {list(value.shape)}"
        return [shape[0]]
    if string := re.match(r"'[^']*'", comment):
        assert value == string[0].strip("'"), f"{where}: it is {value!r}"
        return [string[0]]
    if numbers := re.match(rf"{_NUMBER}(?:, {_NUMBER})*(?![\w.])", comment):
        printed = numbers[0].split(", ")
        found = np.asarray(value, dtype=float).ravel()
        as_printed = [as_text(number, text) for number, text in zip(found, printed, strict=False)]
        assert as_printed == printed, f"{where}: it is {as_printed}"
        return printed
    return []


def compare_table(value: Any, below: list[str], line: int) -> list[str]:
    """The rows of a table in comments, the first of which names columns, are those of the value; what was compared."""
    if not below:
        return []
    columns = below[0].split()
    rows = [row.split()[: len(columns)] for row in below[1:]]
    assert isinstance(value, pd.DataFrame), f"README.md, line {line}: a table is printed, it is {type(value)}"
    found = [
        [as_text(cell, text) for cell, text in zip(cells, row, strict=True)]
        for cells, row in zip(value[columns].to_numpy().tolist(), rows, strict=True)
    ]
    assert found == rows, f"README.md, line {line}: it is {found}"
    return [cell for row in rows for cell in row]


def as_text(value: Any, like: str) -> str:
    """A number with as many digits as the text has that it is compared with; anything else as it is."""
    if isinstance(value, str):
        return value
    mantissa, e, _ = like.partition("e")
    return f"{value:.{len(mantissa.partition('.')[2])}{e or 'f'}}"


@pytest.mark.parametrize(
    ("value", "comment"),
    [
        (3.1171, "3.1172 (Roy & Vetterli)"),
        (np.array([1.0, 2.0]), "1.0, 2.1: two"),
        (np.array([1.0]), "1.0, 2.0"),
        (np.zeros((2, 3)), "[2, 4]: two by four"),
        ("s_1", "'s_2': a string"),
    ],
)
def test_a_comment_that_does_not_hold_is_told_from_one_that_does(value, comment):
    with pytest.raises(AssertionError, match="here: "):
        compare(value, comment, "here")


def test_comments_that_hold_are_seen():
    assert compare(3.11709, "3.1171 (Roy & Vetterli)", "here") == ["3.1171"]
    assert compare(np.array([1.04, 2, 3]), "1.0, 2 ... and so on", "here") == ["1.0", "2"]
    assert compare(np.zeros((2, 3)), "[2, 3] kept as", "here") == ["[2, 3]"]
    assert compare(object(), "two numbers, 3 and 4", "here") == []
    table = pd.DataFrame({"step": [64.72], "kind": ["cliff"], "p_value": [9.81e-12]})
    assert compare_table(table, ["step kind p_value", "64.7 cliff 9.8e-12  said of it"], 1) == [
        "64.7",
        "cliff",
        "9.8e-12",
    ]
    with pytest.raises(AssertionError, match="it is"):
        compare_table(table, ["step kind", "64.8 cliff"], 1)


# commands, names, links


def commands(text: str) -> list[str]:
    """Lines of blocks without a language, without their comments, and commands in the text."""
    shell = "".join(block.code for block in blocks(text) if not block.language and not block.why_not_run)
    lines = [line.split(" #")[0].strip() for line in shell.splitlines()]
    inline = re.findall(r"`((?:make|probes|\S*python -m) [^`]+)`", _BLOCK.sub("", text))
    return [line for line in [*lines, *inline] if line]


@pytest.mark.parametrize("command", commands(README) + commands(CONTRIBUTING))
def test_every_command_is_understood(command, pytestconfig):
    words = shlex.split(command)
    if words[0].endswith("python") and words[1] == "-m":
        words = words[2:]
    match words[0].removeprefix(".venv/bin/"), words[1:]:
        case "make", [target, *_]:
            assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), re.M), f"no target {target}"
        case "probes", arguments:
            given = parsed(probes.__main__.app, arguments)
            if "engine" in given:
                engine_named(given["engine"])
        case "models", arguments:
            given = parsed(models.__main__.app, arguments)
            models.__main__.seeds_of(given["seed"])
            assert given["preset"] in models.__main__.MODELS[arguments[0]][1]
        case "analyses", arguments:
            given = parsed(analyses.__main__.app, arguments)
            chosen_pages(given["names"] or (), given["paper"] or ())
        case "pytest", [file, *options]:
            assert (ROOT / file).is_file()
            for option in [word for word in options if word.startswith("--")]:
                assert pytestconfig.getoption(option) is not None
        case program, _ if program.startswith("tests."):
            place = ROOT / program.replace(".", "/")
            assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()
        case program, _:
            assert program in ("pip", "pre-commit"), f"{command!r}: this test knows no program {program}"


def parsed(app: typer.Typer, arguments: list[str]) -> dict[str, Any]:
    """The arguments of a command as the command line understands them; what it does not understand raises."""
    command, name = typer.main.get_command(app), "it"
    if by_name := getattr(command, "commands", None):
        name, *arguments = arguments
        assert name in by_name, f"no command {name!r}"
        command = by_name[name]
    with command.make_context(name, list(arguments)) as context:
        return context.params


def test_a_command_that_does_not_exist_is_refused():
    with pytest.raises(AssertionError, match="no command 'mesure'"):
        parsed(probes.__main__.app, ["mesure", "output"])
    usage_error = typer.BadParameter.__mro__[1]  # of the click that typer uses, which may be its own
    for wrong in (["measure", "output", "--engin", "serial"], ["measure", "output"]):
        with pytest.raises(usage_error):
            parsed(probes.__main__.app, wrong)


def test_the_functions_in_the_table_are_there():
    table = README[README.index("| you want | call |") :].split("\n\n")[0]
    names = re.findall(r"`(\w+)`", table)
    assert len(names) > 20
    assert [name for name in names if not hasattr(probes, name)] == []


def test_the_models_in_the_table_are_those_that_can_be_trained():
    table = README[README.index("| model | what it is | theory |") :].split("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)`", table, re.M) == list(models.__main__.MODELS)


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_links_and_paths_lead_somewhere_and_imports_in_the_text_work(text):
    prose = _BLOCK.sub("", text)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", prose) if "://" not in link]
    paths = re.findall(r"`((?:probes|checkpoints|models|analyses|tests|benchmarks|\.ci)/[\w./]+)`", prose)
    there = [re.sub(r"/[^/]*(NAME|PAPER).*", "", path) for path in [*links, *paths]]  # of a file to be, its folder
    assert [path for path in there if not (ROOT / path).exists()] == []
    for statement in re.findall(r"`(from [\w.]+ import [\w, ]+)`", prose):
        exec(statement, {})


def test_the_version_to_be_cited_is_that_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project["authors"]]
    assert [len(paper["authors"]) for paper in citation["references"]] == [2, 4, 3, 3, 3]
