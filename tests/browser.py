"""A page opened from disk in headless Chromium with the network off, and all that it complained of."""

import csv
import io
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
READY = "html[data-ready=yes]"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM} here: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page in the browser, once it can be used."""

    def __init__(self, chromium: Any, file: Path, fragment: str = "", **context: Any) -> None:
        self.context = chromium.new_context(accept_downloads=True, offline=True, **context)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"file://{file}{fragment}")
        self.page.wait_for_selector(READY, timeout=30_000)

    @property
    def view(self) -> dict[str, str]:
        """What the address says is being looked at."""
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.page.url).fragment))

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def downloaded(self, act: Callable[[], Any]) -> list[list[str]]:
        """The rows of the CSV file that this hands over."""
        with self.page.expect_download() as download:
            act()
        return list(csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
