"""README and docs can be followed: their Python runs and prints what they say, commands parse, names and links exist.

Blocks of Python run from top to bottom in one namespace a document, in a folder that is laid out as they name it; what
is the reader's own (model, data, update, evaluate) is small. A comment behind a line that begins with numbers, a shape
or a string is what the line must give, to the digits printed; so are the rows of a table in comments below it. A block
that cannot be run is preceded by `<!-- not run: why -->` and only compiled. A block without a language holds commands,
which are parsed and not run; one of `math` is a formula of the catalogue (`tests/test_null_levels.py` typesets it).
`pytest -rP tests/test_readme.py` lists what was done with every block.

Commands, links and paths in CONTRIBUTING are held to the same.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
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
from analyses.registry import GROUPS, chosen_pages
from checkpoints.hub import Hub
from probes.measuring.engines import engine_named
from tests import small_gpt2
from tests.documents import BLOCK, DOCUMENTS, NUMBER, ROOT, blocks, compare, compare_table, statements
from tests.hub_server import HubServer, serving
from tests.scorecard import ROW, counted


def with_python() -> list[str]:
    return [name for name, text in DOCUMENTS.items() if any(block.fate == "run" for block in blocks(text))]


def test_every_block_is_run_or_parsed_or_says_why_not():
    kinds = []
    for name, text in DOCUMENTS.items():
        assert len(re.findall("^```", text, re.M)) == 2 * len(blocks(text)), f"{name} has a block that is not seen here"
        for block in blocks(text):
            print(f"{name}, line {block.line}: {block.fate}")  # noqa: T201
            assert block.fate, f"{name}, line {block.line}: a block of {block.language} is neither run nor marked"
            kinds.append(block.fate)
    assert kinds.count("run") >= 20
    assert kinds.count("commands parsed") >= 3


# Python


@pytest.fixture(scope="module")
def things(tmp_path_factory) -> Path:
    """All that the documents open, as somebody would have it."""
    place = tmp_path_factory.mktemp("things")
    (place / "checkpoints").mkdir()
    (place / "checkpoints" / "reference").symlink_to(ROOT / "checkpoints" / "reference")
    for name in ("output/checkpoint-500", "output/checkpoint-1000", "ckpts/step1000", "ckpts/step2000", "llama"):
        small_gpt2.sharded(place / name, small_gpt2.state())
    torch.save({"model": small_gpt2.state(), "iter_num": 7}, place / "ckpt.pt")
    return place


@pytest.fixture
def folder(things, tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder with these things, in which a document may write; and a hub that serves what it names."""
    for thing in things.iterdir():
        (tmp_path / thing.name).symlink_to(thing)
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
@pytest.mark.parametrize("name", with_python())
def test_the_python_runs_from_top_to_bottom_and_gives_what_its_comments_say(name, folder):
    namespace, compared, printed = readers_own(), [], 0
    for block in blocks(DOCUMENTS[name]):
        if block.language == "python" and block.why_not_run:
            compile(block.code, f"{name}, line {block.line}", "exec")
        elif block.language == "python":
            printed += len(re.findall(rf"  # {NUMBER}[, ]|^# +{NUMBER} ", block.code, re.M))
            for line, value, comment, below in statements(name, block, namespace):
                where = f"{name}, line {line}"
                compared += compare(value, comment, where) + compare_table(value, below, where)
    assert len(compared) >= printed  # else it is this test that no longer sees what is printed


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
    assert compare_table(table, ["step kind p_value", "64.7 cliff 9.8e-12  said of it"], "here") == [
        "64.7",
        "cliff",
        "9.8e-12",
    ]
    with pytest.raises(AssertionError, match="it is"):
        compare_table(table, ["step kind", "64.8 cliff"], "here")


# commands, names, links


def commands(text: str) -> list[str]:
    """Lines of blocks without a language, without their comments, and commands in the text."""
    shell = "".join(block.code for block in blocks(text) if not block.language and not block.why_not_run)
    lines = [line.split(" #")[0].strip() for line in shell.splitlines()]
    inline = re.findall(r"`((?:make|probes|\S*python -m) [^`]+)`", BLOCK.sub("", text))
    return [line for line in [*lines, *inline] if line]


@pytest.mark.parametrize("command", sorted({line for text in DOCUMENTS.values() for line in commands(text)}))
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
        case program, _ if program.startswith(("tests.", "benchmarks.")):
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
    table = DOCUMENTS["docs/analyse.md"].split("| you want | call |")[1].split("\n\n")[0]
    names = re.findall(r"`(\w+)`", table)
    assert len(names) > 20
    assert [name for name in names if not hasattr(probes, name)] == []


def test_the_models_in_the_table_are_those_that_can_be_trained():
    table = DOCUMENTS["docs/reproduce.md"].split("| model | what it is | theory |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)`", table, re.M) == list(models.__main__.MODELS)


def test_the_scorecard_counts_the_committed_verdicts():
    assert len(ROW.findall(DOCUMENTS["README.md"])) == len(GROUPS) + 1
    assert counted(DOCUMENTS["README.md"]) == DOCUMENTS["README.md"], "python -m tests.scorecard counts anew"


def test_the_readme_is_a_screen_and_a_half():
    assert len(DOCUMENTS["README.md"].splitlines()) <= 150
    picture = ROOT / re.findall(r"!\[[^]]+\]\(([^)]+)\)", DOCUMENTS["README.md"])[0]
    assert picture.stat().st_size < 200_000


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_and_paths_lead_somewhere_and_imports_in_the_text_work(name):
    prose = BLOCK.sub("", DOCUMENTS[name])
    links = [link for link in re.findall(r"\]\(([^)#\s]+)\)", prose) if "://" not in link]
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []
    paths = re.findall(r"`((?:probes|checkpoints|models|analyses|tests|benchmarks|\.ci)/[\w./]+)`", prose)
    there = [re.sub(r"/[^/]*(NAME|PAPER).*", "", path) for path in paths]  # of a file to be, its folder
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
