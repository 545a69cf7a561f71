"""The older TransformerLens repositories: `config.json` and `checkpoints/tokens_001000.pth`, numbered at the end.

The number counts steps in some repositories and tokens in others; it is kept as it is, and `run.step_unit` says what
it counts: "token", "step", or "number" where neither the names nor the numbers tell.
"""

import re
from collections.abc import Sequence

from checkpoints.remote_path import Place
from checkpoints.run import Entry, Run
from checkpoints.sources.folder import config_beside, opener
from checkpoints.sources.names import NUMBER, TOKEN, believed, counts_in
from checkpoints.sources.step_folders import unit_notices

NUMBERED = re.compile(r"checkpoints/.*_(\d+)\.pth?")


MOST_STEPS = 1e9
"""Above this a number counts tokens: so TransformerLens has it (`get_checkpoint_labels` in its
tools/model_registry/checkpoints.py), and no training makes a billion updates. Below, it takes numbers for steps."""


def unit_of_numbers(repository: str, names: Sequence[str], last: int) -> tuple[str, tuple[str, ...]]:
    """What the numbers count, by the names or by how large the last is, and what to say of it."""
    units = {count.unit if (count := believed(counts_in(name))) else NUMBER for name in names}
    unit = units.pop() if len(units) == 1 else NUMBER
    if unit == NUMBER and last > MOST_STEPS:
        unit = TOKEN
    if unit == NUMBER:
        return unit, (
            f"{repository}: nothing says whether the numbers of its checkpoints, up to {last}, count updates or tokens "
            "(TransformerLens would take them for updates). run.step_unit is 'number'",
        )
    return unit, unit_notices(repository, unit)


def find(path: Place) -> Run | None:
    """The run in a copy of such a repository, None if this is not one."""
    folder = path / "checkpoints"
    files = folder.glob("*.pt*") if folder.is_dir() else ()
    found = sorted((int(match[1]), file) for file in files if (match := NUMBERED.fullmatch(f"checkpoints/{file.name}")))
    config = config_beside(path)
    if not found or not {"n_heads", "d_head"} & config.keys():
        return None  # somebody else's folder of that name: see step_folders
    unit, notices = unit_of_numbers(path.resolve().name, [file.name for _, file in found], found[-1][0])
    return Run(
        source=str(path),
        name=path.resolve().name,
        entries=[Entry(number, str(file), opener(file)) for number, file in found],
        family="transformer-lens",
        config=config,
        step_unit=unit,
        notices=notices,
    )
