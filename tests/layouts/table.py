"""The table of all layouts, as docs/layouts.md has it."""

from collections.abc import Sequence
from pathlib import Path

from tests.layouts import by_hand, by_readers, by_torch, by_trainers, remote
from tests.layouts.layout import Judged

PAGE = Path(__file__).parents[2] / "docs" / "layouts.md"
LAYOUTS = [layout for group in (by_torch, by_trainers, by_readers, by_hand, remote) for layout in group.LAYOUTS]

HEAD = """# Layouts

Ways in which people lay out the checkpoints of a run, and whether `checkpoints.open_run` opens them. Every row is
saved, by the library that it names where that can be installed, or by hand exactly as that library lays it out; then it
is opened. Its steps and what they count are compared with what was saved, and so are the singular values of one OV
circuit of every step (to 1e-5 of the largest). The model is a small GPT-2 throughout: this is about files.
`python -m tests.layouts` writes this file, `tests/test_layouts.py` holds it to the code.

| layout | opens | steps | saved by |
|---|---|---|---|
"""


def page(judged: Sequence[Judged]) -> str:
    """The page in docs."""
    rows = [f"| {_code(one.layout.name)} | {_opens(one)} | {_steps(one)} | {one.layout.saved_by} |" for one in judged]
    opened = sum(one.opens for one in judged)
    return HEAD + "\n".join(rows) + f"\n\n{opened} of {len(judged)} open as they were saved.\n"


def _code(name: str) -> str:
    return name.replace("_", "\\_").replace("*", "\\*")


def _opens(one: Judged) -> str:
    if not one.opens:
        return "no: " + one.failure.replace("|", "\\|").splitlines()[0][:200]
    for setting in ("steps", "revisions"):
        if setting in one.layout.opening:
            return f"with `{setting}={one.layout.opening[setting]!r}`"
    return "with a `family=` for its names" if "family" in one.layout.opening else "yes"


def _steps(one: Judged) -> str:
    unit = {"number": "not said"}.get(one.layout.unit, one.layout.unit + "s")
    return f"{', '.join(map(str, one.steps))} ({unit})"
