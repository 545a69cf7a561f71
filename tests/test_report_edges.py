"""Runs that have little to show, and names that mean harm: a page that says so, and nothing but text."""

import html
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import probes
from checkpoints import RunWriter, open_run
from probes.measuring.tables import as_table
from tests.browser import CHROMIUM, Opened
from tests.report_pages import write_run

pytestmark = pytest.mark.xdist_group("browser")
in_browser = pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: apt-get install chromium")


def said(file: Path) -> str:
    """The words of the page, above its data."""
    return file.read_text(encoding="utf-8").split('id="page-data"')[0]


def one_checkpoint(path: Path) -> Path:
    return probes.report(write_run(path / "run", [5]), path=path / "report.html")


def none_sound(path: Path) -> Path:
    run = write_run(path / "run", [1, 2, 4, 8], metrics=False)
    for step in run.steps:
        file = next((path / "run").glob(f"*{step:06d}*"))
        file.write_bytes(file.read_bytes()[:40])
    return probes.report(open_run(path / "run"), path=path / "report.html")


def no_metrics(path: Path) -> Path:
    return probes.report(write_run(path / "run", [1, 2, 4, 8], metrics=False), path=path / "report.html")


def no_attention(path: Path) -> Path:
    with RunWriter(path / "run") as writer:
        for step in (1, 2, 4, 8):
            rng = np.random.default_rng(step)
            writer.log(step, loss=1 / step)
            writer.save(step, {"fc.weight": torch.tensor(rng.standard_normal((8, 6)), dtype=torch.float32)})
    return probes.report(path / "run", path=path / "report.html")


def empty_heads(path: Path) -> Path:
    run = write_run(path / "run", [1, 2, 4, 8], broken=(0,))
    return probes.report(run, probes.measure(run, probes="effective_rank"), path=path / "report.html")


def broken_loss(path: Path) -> Path:
    with RunWriter(path / "run") as writer:
        rng = np.random.default_rng(0)
        for step in range(1, 65):
            writer.log(step, loss=float("nan") if step > 40 else 3.0 - step / 40)
            if step in (1, 2, 4, 8, 16, 32, 64):
                writer.save(step, {"fc.weight": torch.tensor(rng.standard_normal((8, 6)), dtype=torch.float32)})
    return probes.report(path / "run", path=path / "report.html")


EDGES = {
    one_checkpoint: ["1 checkpoint", "could not look for events", "One checkpoint alone cannot be audited"],
    none_sound: ["condemns every checkpoint", "could not look for events", "there is no map", "4 condemned"],
    no_metrics: [
        "No metrics were found",
        "No loss was logged",
        "could not look for events",
        "Not searched: ov.norm, qk.norm, ov.effective_rank, qk.effective_rank",
    ],
    no_attention: ["4 checkpoints", "no attention here; measured are its matrices fc", "20 are needed"],
    empty_heads: ["No number at any checkpoint: heads 0.0, 0.1"],
    broken_loss: [
        "nothing found",
        "in 1 panel or metric searched",
        "24 values that are not finite",
        "not shown, 24 values of loss are not finite",
    ],
}


@in_browser
@pytest.mark.filterwarnings("ignore:run 'run'. no attention")
@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge.__name__)
def test_a_run_with_little_to_show_gives_a_page_that_says_so(edge, tmp_path, chromium):
    file = edge(tmp_path)
    words = said(file)
    for expected in EDGES[edge]:
        assert expected in words
    assert ("nothing found" in words) is ("nothing found" in EDGES[edge])  # "could not look" is not the same
    opened = Opened(chromium, file, viewport={"width": 1000, "height": 800})
    assert opened.complaints == []
    opened.context.close()


HARM = "<script>document.title='run'</script><img src=x onerror=alert(1)>\"'`{{7*7}}</title></script><!--<script x"
RIGHT_TO_LEFT = "\u202eevil\u202c שלום 🦊"


def hostile_table(name: str) -> pd.DataFrame:
    """All that can carry a name carries a bad one."""
    steps = list(range(1, 7))
    columns = {key: [] for key in ("run", "step", "layer", "head", "circuit", "probe", "component", "value", "tower")}
    for step in steps:
        for circuit in (f"ov{HARM}", RIGHT_TO_LEFT):
            for head in (0, 1):
                values = (name, step, 0, head, circuit, f"norm{HARM}", None, 10.0**step * (head + 1), f"tower{HARM}")
                for key, value in zip(columns, values, strict=True):
                    columns[key].append(value)
    columns["why_missing"] = [None] * len(columns["run"])
    return as_table(columns, {"definitions": {f"norm{HARM}": HARM}, "audit": HARM, "notes": [HARM], "versions": {}})


@in_browser
@pytest.mark.filterwarnings("ignore:run '")  # with ten thousand letters
def test_hostile_names_appear_as_text_and_nothing_else(tmp_path, chromium):
    name = HARM + RIGHT_TO_LEFT + "x" * 10_000
    with RunWriter(tmp_path / "run", name=name) as writer:
        rng = np.random.default_rng(0)
        for step in range(1, 7):
            writer.log(step, **{f"loss{HARM}$x_1$": 1.0 / step, RIGHT_TO_LEFT: 1.0})
            writer.save(step, {"fc.weight": torch.tensor(rng.standard_normal((4, 3)), dtype=torch.float32)})
    run = open_run(tmp_path / "run")
    assert run.name == name
    file = probes.report(run, hostile_table(name), path=tmp_path / "report.html", command=f"probes report {HARM}")
    opened = Opened(chromium, file, viewport={"width": 390, "height": 800})
    page = opened.page
    assert opened.complaints == []
    assert page.locator("script").count() == 5
    assert page.locator("img").count() == 0
    assert HARM[:60] in opened.text("h1")
    assert HARM in page.locator("#reference").inner_text()
    assert page.title().startswith("<script>")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.focus("#map")
    page.keyboard.press("ArrowDown")
    assert RIGHT_TO_LEFT in opened.text("#readout") or HARM[:20] in opened.text("#readout")
    rows = opened.downloaded(lambda: page.click("[data-csv=all]"))
    assert rows[1][0] == f"norm{HARM}"
    np.testing.assert_allclose([float(one) for one in rows[1][5:]], 10.0 ** np.arange(1, 7), rtol=2e-4)
    fragment = page.url.partition("#")[2]
    again = Opened(chromium, file, f"#{fragment}", viewport={"width": 390, "height": 800})
    assert again.text("#pins") == opened.text("#pins")
    assert again.complaints == opened.complaints == []


def test_nothing_runs_but_what_the_policy_names_by_its_hash(tmp_path):
    text = no_metrics(tmp_path).read_text(encoding="utf-8")
    policy = html.unescape(text.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0])
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    script = policy.split("script-src ")[1].split(";")[0]
    assert script.count("sha256-") == 2
    assert "unsafe" not in script
