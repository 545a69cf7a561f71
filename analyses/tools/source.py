"""Which runs a page is about: how large, where they are kept, and whether they are the fresh ones.

Fresh runs have other seeds, used for the first time after the rules of the claims were fixed; their words are printed
beside the first ones (`claims.judged_again`).
"""

from dataclasses import dataclass, replace
from pathlib import Path

FRESH = 20  # the first of the fresh seeds


@dataclass(frozen=True)
class Source:
    """A size ("toy", "quick", "paper"), a folder, and which of the seeds."""

    size: str
    runs: Path
    is_fresh: bool = False

    def seeds(self, count: int) -> range:
        """So many seeds, from 0 or from the first fresh one."""
        first = FRESH if self.is_fresh else 0
        return range(first, first + count)

    @property
    def fresh(self) -> "Source | None":
        """The same with fresh seeds; none at toy size, whose words mean nothing anyway."""
        return None if self.size == "toy" else replace(self, is_fresh=True)
