"""Who imports whom: `python -m tests.import_graph` (or `make rooms`) prints it room by room, with the arrows backwards.

Packages meet in `checkpoints`. Inside `probes` every room may import those before it in ROOMS and none after.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

PACKAGES = {
    "checkpoints": set(),
    "probes": {"checkpoints"},
    "models": {"checkpoints"},
    "analyses": {"checkpoints", "probes", "models"},
}
"""What each package may import besides itself."""

ROOMS = (
    "threads",
    "matrices",
    "series",
    "circuits",
    "theory",
    "measuring",
    "events",
    "monitor",
    "watch",
    "plot",
    "reporting",
    "interrupted",
    "opening",
    "__main__",
)
"""Of `probes`, in order."""


def imported(file: Path) -> set[str]:
    """Modules that a file imports, anywhere in it, by their full names."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(module: str) -> str:
    """The room of a module of `probes`; "__init__" for `probes` itself, whose names come from any room."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "__init__"


def arrows() -> Iterator[tuple[str, str, Path]]:
    """Every import between two rooms of `probes`: from, to, and the file that has it."""
    for file in sorted((ROOT / "probes").rglob("*.py")):
        relative = file.relative_to(ROOT)
        here = room(".".join(relative.with_suffix("").parts))
        for module in imported(file):
            if module.split(".")[0] == "probes" and here not in ("__init__", room(module)):
                yield here, room(module), relative


def is_backwards(here: str, there: str) -> bool:
    """Whether an import goes against the order; from `probes` itself it does, since that is any room."""
    return there == "__init__" or ROOMS.index(there) > ROOMS.index(here)


if __name__ == "__main__":
    counts = Counter((here, there) for here, there, _ in arrows())
    for here in ROOMS:
        to = [f"{there} {counts[here, there]}" for there in (*ROOMS, "__init__") if counts[here, there]]
        sys.stdout.write(f"{here:<10} imports {', '.join(to) or 'nothing of probes'}\n")
    backwards = [f"{file}: {here} imports {there}" for here, there, file in arrows() if is_backwards(here, there)]
    sys.stdout.write("\n".join(backwards) + "\n" if backwards else "no arrow backwards, so no cycle\n")
