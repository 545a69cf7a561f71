"""Save, open and compare every layout, and write docs/layouts.md: `python -m tests.layouts [part of a name]`."""

import sys
import tempfile
from pathlib import Path

from tests.layouts.layout import judge
from tests.layouts.table import LAYOUTS, PAGE, page


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as place:
        judged = [judge(one, Path(place) / str(i)) for i, one in enumerate(LAYOUTS) if wanted in one.name]
    for one in judged:
        told = one.failure or f"steps {list(one.steps)}, error {one.error:.0e}"
        sys.stdout.write(f"{one.layout.name}: {told}\n")
    if not wanted:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(judged), encoding="utf-8")


if __name__ == "__main__":
    main()
