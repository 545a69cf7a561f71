"""The picture in the README: `python -m tests.report_picture` trains the run of `make demo` if need be and draws it.

The top of its report as a browser shows it, in at most 200 kB.
"""

import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import probes
from analyses.demo import LEARNER, RUNS, TRAIN

PICTURE = Path(__file__).parents[1] / "docs" / "report.png"
SHOWN = ("#loss", "#map", "#map-legend")


def main() -> None:
    subprocess.run([sys.executable, "-m", "models", *TRAIN, "--out", str(RUNS)], check=True)
    report = probes.report(RUNS / LEARNER, path=RUNS / f"{LEARNER}.html", tables=RUNS / "tables")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900}, device_scale_factor=1.5)
        page.goto(report.resolve().as_uri())
        page.wait_for_timeout(3000)
        boxes = [page.locator(where).bounding_box() for where in SHOWN]
        top, bottom = min(box["y"] for box in boxes), max(box["y"] + box["height"] for box in boxes)
        page.screenshot(path=PICTURE, clip={"x": 0, "y": top, "width": 1000, "height": bottom - top}, full_page=True)
        browser.close()
    Image.open(PICTURE).convert("RGB").quantize(200).save(PICTURE, optimize=True)
    sys.stdout.write(f"{PICTURE}: {PICTURE.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
