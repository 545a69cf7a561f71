"""The gallery shows every page beside its claims, in a browser: filter, formulas, phone, dark, print, no network.

What was drawn is shown with its figure; what was not, by its committed verdicts, and says so. Chromium is Debian's,
driven by Playwright; where either is missing those tests are skipped.
"""

import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from analyses.gallery.entries import Entry, committed_entries, gathered, keep, of_page
from analyses.gallery.formulas import FORMULAS
from analyses.gallery.render import KINDS, write_gallery
from analyses.gallery.reports import EXAMPLES, FOLDER, reports_of, write_reports
from analyses.registry import GROUP_OF, GROUPS
from analyses.tools.page import Page, write_markdown
from analyses.tools.verdicts import CANNOT, FAILS, HOLDS, IN_PART, Verdict

HOSTILE = "</p><script>document.title = 'taken'</script> \"'& ‮rtl \N{PARTY POPPER} a|b"
VERDICTS = [
    Verdict("one that holds", "Fig 1", "1.0", HOLDS, "because", "ten runs, .99 of them"),
    Verdict("in part", "Fig 2", "0.5", IN_PART, "because"),
    Verdict("not at all", "Eq 3", "0.0", FAILS, "because"),
    Verdict(HOSTILE, HOSTILE, "not seen", CANNOT, HOSTILE),
]


def drawn(name: str = "fixed_point", size: str = "quick") -> Page:
    figure = Figure(figsize=(12, 5))
    figure.subplots().plot([0, 1])
    return Page(name, "Where it ends", "A summary.", "N = 32", figure, HOSTILE, VERDICTS)


# what is gathered


def test_what_was_drawn_is_shown_as_drawn_and_the_rest_by_committed_verdicts(tmp_path):
    page = drawn()
    page.write(tmp_path)
    keep(page, "quick", tmp_path)
    report = EXAMPLES["fixed_point"].format(size="quick").replace("/", "-") + ".html"
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / report).write_text("a report")
    entries = {entry.name: entry for entry in gathered(tmp_path)}
    assert list(entries) == list(GROUP_OF)
    assert entries["fixed_point"] == of_page(page, "quick", [report])
    others = [entry for name, entry in entries.items() if name != "fixed_point"]
    assert all(entry.size is None and entry.figure is None and entry.verdicts for entry in others)


def test_committed_verdicts_are_read_as_they_were_written(tmp_path, monkeypatch):
    pages = [
        Page(name, f"Title {name}", "A summary.", "facts", Figure(), "", VERDICTS) for name in GROUPS["sparse"].pages
    ]
    write_markdown(tmp_path / "VERDICTS.md", "What holds", pages)
    monkeypatch.setattr("analyses.registry.Group.verdicts_file", tmp_path / "VERDICTS.md")
    entries = committed_entries("sparse")
    assert [(entry.name, entry.title, entry.summary, entry.facts, entry.verdicts) for entry in entries] == [
        (page.name, page.title, page.summary, page.facts, VERDICTS) for page in pages
    ]


def test_every_committed_verdict_is_one_of_four_and_every_page_has_a_formula_and_a_command():
    entries = [entry for group in GROUPS for entry in committed_entries(group)]
    assert sum(len(entry.verdicts) for entry in entries) > 100
    assert {verdict.verdict for entry in entries for verdict in entry.verdicts} <= set(KINDS)
    assert set(FORMULAS) == set(GROUP_OF)
    assert all(Path(entry.committed).is_file() for entry in entries)
    assert entries[0].command == "python -m analyses fixed_point --size paper"


def test_a_run_of_a_page_is_told_in_a_report_to_which_the_gallery_leads(tmp_path):
    run = tmp_path / "runs" / EXAMPLES["fixed_point"].format(size="quick")
    shutil.copytree("checkpoints/reference/linear-icl", run)
    said: list[str] = []
    for _ in range(2):  # the second time it is there
        write_reports(
            ["fixed_point", "mode_trajectories", "grokking"], "quick", tmp_path / "runs", tmp_path, said.append
        )
    assert said == ["report on three-modes-N128-seed0 ..."]
    assert reports_of("mode_trajectories", tmp_path) == ["linear-icl-quick-three-modes-N128-seed0.html"]
    assert (tmp_path / FOLDER / reports_of("fixed_point", tmp_path)[0]).stat().st_size > 500_000
    assert reports_of("grokking", tmp_path) == reports_of("sparse_scaling", tmp_path) == []


# in a browser


@pytest.fixture(scope="module")
def gallery(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    others = [entry for entry in gathered(folder) if entry.name != "fixed_point"]
    entries: list[Entry] = [of_page(drawn(), "toy", ["a run #1.html"]), *others]
    return write_gallery(folder / "index.html", "What holds", entries)


@pytest.fixture
def page(chromium, gallery, request):
    """The gallery as a phone or a desktop shows it; nothing is asked for but the file, nothing complains."""
    width, scheme = getattr(request, "param", (1400, "light"))
    context = chromium.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    said, asked = [], []
    opened = context.new_page()
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda sent: asked.append(sent.url))
    opened.goto(gallery.as_uri())
    yield opened
    assert said == []
    assert [url for url in asked if not url.startswith((gallery.as_uri(), "data:image/png"))] == []
    context.close()


def shown(page) -> list[str]:
    return page.locator(".claim:visible").evaluate_all("claims => [...new Set(claims.map(c => c.dataset.verdict))]")


def test_claims_are_filtered_by_keyboard_and_by_mouse_and_the_address_opens_the_same_view(page, gallery):
    everything = page.locator(".claim").count()
    assert page.locator("#shown").inner_text() == f"{everything} of {everything} claims shown"
    page.locator("input[value=fails]").focus()
    page.keyboard.press("Space")
    assert "fails" not in shown(page)
    page.locator("label.holds").click()
    page.get_by_label("hold in part").uncheck()
    assert shown(page) == ["cannot"]
    left = page.locator('.claim[data-verdict="cannot"]').count()
    assert page.locator("#shown").inner_text() == f"{left} of {everything} claims shown"
    assert page.locator("#grokking .nothing").is_visible()  # an analysis of which nothing is left says so
    page.goto("about:blank")
    page.goto(gallery.as_uri() + "#show=part,fails")
    assert set(shown(page)) == {"part", "fails"}


def test_names_are_text_and_nothing_else(page):
    assert page.title() == "What holds"
    assert HOSTILE in page.locator("#fixed_point .claim.cannot .text").text_content()
    assert page.locator("#fixed_point .report a").get_attribute("href") == f"{FOLDER}/a%20run%20%231.html"


def test_no_script_but_the_gallerys_own_runs(chromium, gallery):
    opened = chromium.new_page()
    opened.goto(gallery.as_uri())
    with opened.expect_console_message(lambda message: "Content Security Policy" in message.text):
        opened.evaluate(
            "() => { const added = document.createElement('script'); added.textContent = 'document.title = 1';"
            " document.body.append(added); }"
        )
    assert opened.title() == "What holds"
    policy = opened.locator("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    opened.close()


@pytest.mark.parametrize("page", [(390, "light"), (390, "dark"), (1400, "dark")], indirect=True, ids=str)
def test_it_fits_the_screen_and_can_be_read(page):
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    figure, claims = (page.locator(f"#fixed_point {part}").bounding_box() for part in ("figure", ".claims"))
    if width == 390:
        assert claims["y"] > figure["y"] + figure["height"]
    else:
        assert claims["x"] > figure["x"] + figure["width"]  # beside it
    for kind in KINDS.values():
        assert contrast(page, f".claim.{kind} .verdict") >= 4.5
    assert contrast(page, ".claim .why") >= 4.5


def contrast(page, where: str) -> float:
    """Of the letters against what is behind them (WCAG)."""
    colours = page.locator(where).first.evaluate(
        """element => {
          const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
          let behind = element;
          while (numbers(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
          return [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor].map(numbers);
        }"""
    )
    light, dark = sorted((_luminance(colour) for colour in colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour[:3])]
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_formulas_are_typeset_and_a_figure_can_be_made_larger(page):
    assert page.locator("math").count() >= len(GROUP_OF)
    assert page.locator("#fixed_point math mfrac").count() >= 3
    zoom = page.locator("#fixed_point .zoom")
    before = zoom.bounding_box()["width"]
    zoom.focus()
    page.keyboard.press("Enter")
    assert zoom.bounding_box()["width"] > 1.3 * before
    assert zoom.get_attribute("aria-pressed") == "true"
    assert page.locator("#fixed_point .warning").is_visible()  # toy size means nothing
    assert page.locator("#grokking .undrawn").is_visible()
    page.locator("#fixed_point summary").first.press("Enter")
    assert "ten runs, .99 of them" in page.locator("#fixed_point details").first.inner_text()


def test_on_paper_the_filter_is_left_out_and_the_claims_are_not(page):
    page.emulate_media(media="print")
    assert page.locator(".tools").is_hidden()
    assert page.locator("#fixed_point .claim").first.is_visible()
