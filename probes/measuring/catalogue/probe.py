"""What a probe is: a value with a name, what it reads, what its numbers mean, and the function that gives them.

    Probe.of_matrix("nuclear", lambda matrix: np.linalg.norm(matrix, "nuc"), definition="sum of the singular values")
    Probe.of_spectrum("top_share", lambda s: s[:, 0] / s.sum(-1), definition="s_1 / sum s")
    Probe("norm", function_of_heads, definition="||M||_F")

The first takes one head's matrix [rows, columns], multiplied out, as NumPy: the simplest, and slow for large models.
The second takes the singular values [head, k] of all heads at once, which are computed anyway. The third is handed
`LayerHeads`: all that probes of the same heads share (spectra, ranks, Gram matrices, distances).

`measure`, the monitor and every engine take probes as values; names are those of the catalogue. This file needs no
torch, so that `probes list` answers at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from jaxtyping import Float64

if TYPE_CHECKING:
    from probes.measuring.layer_heads import LayerHeads
else:
    LayerHeads = Any

Reads = Literal["current", "current, reference", "current, previous"]
"""The heads now; and those of a reference checkpoint; or those of a checkpoint a stated stretch before."""

Reasons = Mapping[tuple[int, int], str]
"""Why a number is missing, by head and component."""


@dataclass(frozen=True)
class ProbeValues:
    """What a probe found: a number for each head (and component), NaN where there is none, and then why."""

    values: Float64[np.ndarray, "head component"]
    why_missing: Reasons = field(default_factory=dict)

    @staticmethod
    def of(values: np.ndarray, reasons: Sequence[str | None] = ()) -> "ProbeValues":
        """One number per head; NaN where there is a reason."""
        missing = {(head, 0): reason for head, reason in enumerate(reasons) if reason is not None}
        values = np.array(values, dtype=np.float64)
        values[[head for head, _ in missing]] = np.nan
        return ProbeValues(values[:, None], missing)

    @staticmethod
    def nothing(heads: int, components: int, reason: str) -> "ProbeValues":
        """No number at all, for one reason."""
        missing = {(head, component): reason for head in range(heads) for component in range(components)}
        return ProbeValues(np.full((heads, components), np.nan), missing)

    def split(self, heads: Sequence[int]) -> list["ProbeValues"]:
        """The numbers of so many heads, of the next so many, and so on."""
        if len(heads) == 1:
            return [self]
        ends = list(accumulate(heads, initial=0))
        return [
            ProbeValues(
                self.values[start:stop],
                {(head - start, k): why for (head, k), why in self.why_missing.items() if start <= head < stop},
            )
            for start, stop in pairwise(ends)
        ]


@dataclass(frozen=True)
class Probe:
    """One probe.

    function takes the heads now and, for a probe that compares, the heads compared with, both as `LayerHeads`; it
    returns `ProbeValues`, or an array with one number per head, NaN where there is none. components is how many numbers
    it gives for one matrix, numbered in the table's column `component` (None: one, and no component).

    What a reader should know: formula in LaTeX; null_level, from (rows, columns, inner) to what random weights of that
    shape score, one number per component (`catalogue.null_levels`); null, what that level is, or why there is none; and
    cannot_tell, what the number must not be taken for.
    """

    name: str
    function: Callable[..., Any]
    definition: str = ""
    unit: str = ""
    citation: str = ""
    reads: Reads = "current"
    components: int | None = None
    formula: str = ""
    null_level: Callable[[int, int, int | None], np.ndarray] | None = None
    null: str = ""
    cannot_tell: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or set(self.name) & set("@,/ \n"):
            raise ValueError(f"name is {self.name!r}: a word without spaces, commas, / and @ is expected")
        if not callable(self.function):
            raise ValueError(f"probe {self.name!r}: function is {self.function!r}, which cannot be called")
        if self.reads not in get_args(Reads):
            raise ValueError(f"probe {self.name!r}: reads is {self.reads!r}, one of {get_args(Reads)} is expected")
        if self.components is not None and self.components < 1:
            raise ValueError(f"probe {self.name!r}: components is {self.components}, at least 1 is expected")

    @staticmethod
    def of_matrix(name: str, function: Callable[[np.ndarray], Any], **described: Any) -> "Probe":
        """From a function of one head's matrix [rows, columns], float64, to a number, or to `components` numbers."""
        adapted = _OfMatrix(function, described.get("components") or 1)
        return _described(Probe(name, adapted, **described), function, "of each head's matrix")

    @staticmethod
    def of_spectrum(name: str, function: Callable[[np.ndarray], Any], **described: Any) -> "Probe":
        """From a function of singular values [head, k], largest first, to one number per head."""
        return _described(Probe(name, _OfSpectrum(function), **described), function, "of the singular values")

    @property
    def count(self) -> int:
        """How many numbers it gives for one matrix."""
        return self.components or 1

    @property
    def meaning(self) -> str:
        """Definition, unit and citation in one line, as it stands in `table.attrs`."""
        unit = f" [{self.unit}]" if self.unit else ""
        citation = f" ({self.citation})" if self.citation else ""
        return f"{self.definition}{unit}{citation}" or "not described"

    def null_levels(self, rows: int, columns: int, inner: int | None = None) -> Float64[np.ndarray, "component"]:
        """What random weights score: factors [rows, inner], [inner, columns], or one matrix; NaN where no level is."""
        if self.null_level is None:
            return np.full(self.count, np.nan)
        return np.asarray(self.null_level(rows, columns, inner), dtype=np.float64)

    def measure(self, *heads: "LayerHeads") -> ProbeValues:
        """The numbers of these heads, checked: as many as there should be, and none missing without a reason."""
        found = self.function(*heads)
        count = len(heads[0])
        if not isinstance(found, ProbeValues):
            array = np.asarray(found, dtype=np.float64)
            found = ProbeValues(array[:, None] if array.ndim == 1 else array)
        if found.values.shape != (count, self.count):
            raise ValueError(
                f"probe {self.name!r} gave numbers of shape {found.values.shape} for {count} heads: "
                f"({count}, {self.count}) is expected"
                + ("; say how many numbers a matrix has with components=" if self.components is None else "")
            )
        unsaid = {
            (int(head), int(k)): f"{self.name} is {found.values[head, k]}"
            for head, k in np.argwhere(~np.isfinite(found.values))
            if (head, k) not in found.why_missing
        }
        if not unsaid:
            return found
        values = np.where(np.isfinite(found.values), found.values, np.nan)
        return ProbeValues(values, {**found.why_missing, **unsaid})


@dataclass(frozen=True)
class _OfMatrix:
    """A function of one matrix as a function of the heads of a layer; what it raises costs the numbers of one head."""

    function: Callable[[np.ndarray], Any]
    count: int

    def __call__(self, heads: LayerHeads) -> ProbeValues:
        values, missing = np.full((len(heads), self.count), np.nan), {}
        for head, (usable, reason) in enumerate(zip(heads.is_usable.tolist(), heads.missing_reason, strict=True)):
            try:
                if not usable:
                    raise ValueError(reason)
                values[head] = self._numbers(heads.dense(head))
            except Exception as error:  # somebody's function, which may raise anything
                why = str(error) if not usable else f"{type(error).__name__}: {error}"
                missing |= {(head, k): why for k in range(self.count)}
        return ProbeValues(values, missing)

    def _numbers(self, matrix: np.ndarray) -> np.ndarray:
        found = np.asarray(self.function(matrix), dtype=np.float64)
        if found.size != self.count:
            raise ValueError(
                f"the function gave {found.size} numbers for one matrix, {self.count} expected: "
                "probes.Probe.of_matrix(name, function, components=...) says how many there are"
            )
        return found.reshape(-1)


@dataclass(frozen=True)
class _OfSpectrum:
    """A function of singular values as a function of the heads of a layer."""

    function: Callable[[np.ndarray], Any]

    def __call__(self, heads: LayerHeads) -> ProbeValues:
        return heads.from_spectrum(self.function)


def _described(probe: Probe, function: Callable[..., Any], of_what: str) -> Probe:
    """With a definition that says what was called, where the caller gave none."""
    if probe.definition:
        return probe
    says = next(iter((function.__doc__ or "").strip().splitlines()), "")
    name = getattr(function, "__name__", type(function).__name__)
    return replace(probe, definition=says or f"{name}() {of_what}")
