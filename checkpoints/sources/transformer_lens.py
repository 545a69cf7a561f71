"""The older TransformerLens repositories: `config.json` and `checkpoints/tokens_001000.pth`, numbered at the end.

The number counts steps in some repositories and tokens in others; it is kept as it is, and `run.step_unit` says what
it counts where the names do.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from checkpoints.run import Entry, Run
from checkpoints.sources.folder import config_beside, opener
from checkpoints.sources.names import NUMBER, believed, counts_in
from checkpoints.sources.step_folders import unit_notices

NUMBERED = re.compile(r"checkpoints/.*_(\d+)\.pth?")


def unit_of(names: Iterable[str]) -> str:
    """What the numbers count, where the names say it."""
    units = {count.unit if (count := believed(counts_in(name))) else NUMBER for name in names}
    return units.pop() if len(units) == 1 else NUMBER


def find(path: Path) -> Run | None:
    """The run in a copy of such a repository, None if this is not one."""
    folder = path / "checkpoints"
    files = folder.glob("*.pt*") if folder.is_dir() else ()
    found = sorted((int(match[1]), file) for file in files if (match := NUMBERED.fullmatch(f"checkpoints/{file.name}")))
    config = config_beside(path)
    if not found or not {"n_heads", "d_head"} & config.keys():
        return None  # somebody else's folder of that name: see step_folders
    unit, name = unit_of(file.name for _, file in found), path.resolve().name
    return Run(
        source=str(path),
        name=name,
        entries=[Entry(number, str(file), opener(file)) for number, file in found],
        family="transformer-lens",
        config=config,
        step_unit=unit,
        notices=unit_notices(name, unit),
    )
