"""The report of a larger run: how large the file is, how long a browser needs for it, how fast the map is drawn again.

150 checkpoints x 288 rows x 8 probes, with four modes and singular values of each row besides, are what a GPT-2-small
has; 1,000 checkpoints are thinned. Asked for: at most 4 MB, interactive within 3 s, a map in less than 100 ms.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from probes.reporting.collect import page_of
from probes.reporting.job import Looked
from probes.reporting.modes import MODES, SPECTRA
from probes.reporting.page import render

LAYERS, HEADS = 12, 12
PROBES = (
    "norm",
    "effective_rank",
    "stable_rank",
    "participation_ratio",
    "subspace_distance",
    "column_subspace_distance",
    "subspace_drift",
    "subspace_drift_per_step",
)
CHROMIUM = Path("/usr/bin/chromium")

TO_INTERACTIVE = """() => performance.getEntriesByName('ready')[0].startTime"""
REDRAW = """async () => {
    const times = [];
    const order = document.getElementById('order'), probe = document.getElementById('probe');
    const changes = [[order, 'change'], [probe, '3'], [order, 'layer'], [probe, '5'], [probe, '0'], [order, 'change']];
    for (const [control, value] of changes) {
        const start = performance.now();
        control.value = value;
        control.dispatchEvent(new Event('change'));
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        times.push(performance.now() - start);
    }
    return times;
}"""


def table_of(checkpoints: int, probes: Sequence[str], components: Sequence[int | None]) -> pd.DataFrame:
    """Curves of a model of 12 layers of 12 heads, two circuits, with noise that does not compress."""
    rng = np.random.default_rng(0)
    steps = np.unique(np.geomspace(1, 300_000, 3 * checkpoints).round().astype(int))
    steps = steps[np.linspace(0, len(steps) - 1, checkpoints).round().astype(int)]
    index = pd.MultiIndex.from_product(
        [steps, range(LAYERS), range(HEADS), ("ov", "qk"), probes, components],
        names=["step", "layer", "head", "circuit", "probe", "component"],
    )
    table = index.to_frame(index=False).assign(run="large")
    table["component"] = table["component"].astype("Int64")
    table["value"] = rng.lognormal(size=len(table)) + np.log(table["step"].to_numpy())
    table["why_missing"] = None
    table.attrs["definitions"] = dict.fromkeys(probes, "a number")
    return table


def write_page(checkpoints: int, path: Path) -> float:
    """The page of such a run, and the seconds that writing it takes."""
    table = table_of(checkpoints, PROBES, [None])
    spectra = table_of(checkpoints, [probe.name for probe in SPECTRA], range(MODES))
    steps = np.arange(1, 20_001)
    metrics = pd.DataFrame({"loss": 3 / np.log(steps + 2)}, index=pd.Index(steps, name="step"))
    looked = Looked("large", None, None, table, spectra, metrics)
    start = time.perf_counter()
    page = page_of([looked], [], None, alignment=None, command="python -m benchmarks.report", alpha=0.01)
    path.write_text(render(page, [(metrics, page.runs[0])]), encoding="utf-8")
    return time.perf_counter() - start


def run() -> None:
    """Print a line per size; without Chromium, only how large the files are."""
    print(
        "Report: file, time to write it, until it can be used, until the map is drawn again (fastest and median of 6)"
    )
    with tempfile.TemporaryDirectory() as folder:
        for checkpoints in (150, 1000):
            path = Path(folder) / f"{checkpoints}.html"
            seconds = write_page(checkpoints, path)
            said = f"  {checkpoints:>5} checkpoints x {2 * LAYERS * HEADS} rows x {len(PROBES)} probes:"
            print(f"{said} {path.stat().st_size / 1e6:.2f} MB, written in {seconds:.1f} s{_in_browser(path)}")


def _in_browser(path: Path) -> str:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "; no playwright, so no browser was timed"
    if not CHROMIUM.exists():
        return f"; no {CHROMIUM}, so no browser was timed"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(f"file://{path}")
        page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        ready, times = page.evaluate(TO_INTERACTIVE), sorted(page.evaluate(REDRAW))
        said = page.locator("#map-said").inner_text().split(".")[0]
        browser.close()
    return f", usable after {ready / 1e3:.2f} s, map {times[0]:.0f} and {times[len(times) // 2]:.0f} ms ({said})"


if __name__ == "__main__":
    sys.exit(run())
