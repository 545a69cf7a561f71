"""The older TransformerLens repositories: `config.json` and `checkpoints/tokens_001000.pth`, numbered at the end.

The number counts steps in some repositories and tokens in others; it is kept as it is.
"""

import re
from pathlib import Path

from checkpoints.run import Entry, Run
from checkpoints.sources.folder import config_beside, opener

NUMBERED = re.compile(r"checkpoints/.*_(\d+)\.pth?")


def find(path: Path) -> Run | None:
    """The run in a copy of such a repository, None if this is not one."""
    folder = path / "checkpoints"
    files = folder.glob("*.pt*") if folder.is_dir() else ()
    found = sorted((int(match[1]), file) for file in files if (match := NUMBERED.fullmatch(f"checkpoints/{file.name}")))
    if not found:
        return None
    return Run(
        source=str(path),
        name=path.resolve().name,
        entries=[Entry(number, str(file), opener(file)) for number, file in found],
        family="transformer-lens",
        config=config_beside(path),
    )
