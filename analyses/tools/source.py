"""Which runs a page is about: how large, where they are kept, and whether they are the fresh ones.

Fresh runs have other seeds, used for the first time after the rules of the claims were fixed; their words are printed
beside the first ones (`claims.judged_again`). They cost as much again: figures do without, committed verdicts do not.
"""

from dataclasses import dataclass, replace
from pathlib import Path

FRESH = 20  # the first of the fresh seeds


@dataclass(frozen=True)
class Source:
    """A size ("toy", "quick", "paper"), a folder, which of the seeds, and whether fresh ones are wanted as well."""

    size: str
    runs: Path
    is_fresh: bool = False
    has_fresh: bool = False

    def seeds(self, count: int) -> range:
        """So many seeds, from 0 or from the first fresh one."""
        first = FRESH if self.is_fresh else 0
        return range(first, first + count)

    @property
    def fresh(self) -> "Source | None":
        """The same with fresh seeds, if they are wanted; none at toy size, whose words mean nothing anyway."""
        return replace(self, is_fresh=True) if self.has_fresh and self.size != "toy" else None
