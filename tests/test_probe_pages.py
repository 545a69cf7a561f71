"""The committed pages on probes are what the catalogue says; `python -m tests.probe_pages` writes them anew."""

from tests.probe_pages import FOLDER, pages


def test_every_probe_has_a_page_and_every_page_is_what_the_code_says():
    written = pages()
    assert {path.name for path in FOLDER.glob("*.md")} == set(written)
    for name, text in written.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"python -m tests.probe_pages writes {name} anew"
