"""What the library reads of a model that was saved, beside what the model does: exact, refused or WRONG.

    exact      every head that is read is the module's own, to 1e-5 of its largest entry, and all attention is read
    partly     the same, but some attention is not read, and the library says so; the row says which
    SILENT     attention that is not read, or a gate that is left out, without a word
    refused    the library says that it cannot read this, and why
    WRONG      a number that is not the model's

`qk` is compared up to the one factor by which scores are scaled, since modules differ in whether they multiply it into
their queries.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import checkpoints
from probes.circuits import circuit_named
from tests.architectures.around import OFFSET, at_offset, folded
from tests.architectures.truth import Truth, Unknown, truths

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Verdict:
    """One row of the table."""

    architecture: str
    status: str
    towers: str = ""
    circuits: str = ""
    error: float | None = None
    reason: str = ""

    @property
    def last(self) -> str:
        """The error, or the reason."""
        bound = next(
            (text for text in ("1e-12", "1e-6", "1e-5") if self.error is not None and self.error < float(text)), None
        )
        number = "" if self.error is None else f"< {bound}" if bound else f"{self.error:.1g}"
        return "; ".join(part for part in (number, self.reason) if part)


def judge(architecture: str, model: Any, folder: Path) -> Verdict:
    """Save a model, read it with the library, and compare."""
    model.save_pretrained(folder)
    try:
        run = checkpoints.open_run(folder)
        layout = run.heads
        checkpoint = run.representative_checkpoint()
        read = {layer: layout.read(checkpoint, layer) for layer in layout.layers}
    except ValueError as error:
        return Verdict(architecture, "refused", reason=shortened(str(error), folder))
    found = truths(model)
    matched = {layer: _module_of(layout.names(layer), checkpoint, found) for layer in layout.layers}
    errors: dict[str, float] = {}
    faults: list[str] = []
    for layer, heads in read.items():
        truth = matched[layer]
        if not isinstance(truth, Truth):
            faults.append(f"{layer}: {truth.reason if truth else 'no attention module has these tensors'}")
            continue
        for name, error in _errors(model, truth, heads).items():
            errors[name] = error if isnan(error) else max(errors.get(name, 0.0), error)
    unproved = [f"{name} is offered and no truth of it was found" for name, e in errors.items() if isnan(e)]
    errors = {name: error for name, error in errors.items() if not isnan(error)}
    wrong = [f"{name} is off by {error:.2g}" for name, error in errors.items() if error > TOLERANCE]
    towers = ", ".join(dict.fromkeys(getattr(layer, "tower", "") for layer in layout.layers)) or "one"
    taken = {module.path for module in matched.values() if module is not None}
    unread = [module.path for module in found if module.path not in taken]
    gated = any(truth.is_gated for truth in matched.values() if isinstance(truth, Truth))
    silent = [
        what
        for what, said in ((unread, layout.left_out), (gated, "gate" in " ".join(layout.notes)))
        if what and not said
    ]
    status = "WRONG" if wrong else "unproved" if faults or unproved else "partly" if unread else "exact"
    status = "SILENT" if silent and status in ("partly", "exact") else status
    notes = [*wrong, *faults[:2], *unproved]
    if unread:
        notes.append(f"{len(unread)} of {len(found)} attention modules not read: {_pattern(unread)}")
    if gated:
        notes.append("gates open")
    return Verdict(
        architecture, status, towers, ", ".join(errors), max(errors.values(), default=None), "; ".join(notes)
    )


def _errors(model: nn.Module, truth: Truth, heads: Any) -> dict[str, float]:
    """How far each circuit that the library offers is off, of its largest entry; nan where there is no truth."""
    queries = [truth.qk]
    if nope := getattr(truth.module, "qk_nope_head_dim", None):  # the rotary part is a circuit of its own
        shared = truth.key.repeat_interleave(len(truth.query) // len(truth.key), 0)
        queries.append(truth.query[..., :nope] @ shared[..., :nope].mT)
    errors = {"ov": _apart(_dense("ov", heads), [truth.ov])}
    errors["qk"] = _apart(_dense("qk", heads), queries, _scales(truth))
    with_gains = folded(model, truth)
    offered = {"ov_folded": _dense("ov_folded", heads), "qk_folded": _dense("qk_folded", heads)}
    for number, (name, ours) in enumerate(offered.items()):
        if ours is not None:
            errors[name] = _apart(ours, [with_gains[number]], _scales(truth)) if with_gains else float("nan")
    if (ours := _dense(f"qk_at_{OFFSET}", heads)) is not None:
        turned = at_offset(model, truth)
        errors["qk_at_N"] = float("nan") if turned is None else _apart(ours, [turned], _scales(truth))
    return errors


def _dense(name: str, heads: Any) -> Tensor | None:
    """A circuit multiplied out; None where the library refuses it."""
    try:
        circuit = circuit_named(name)(heads)
    except ValueError:
        if name in ("ov", "qk"):
            raise
        return None
    return circuit.left.double() @ circuit.right.double()


def _scales(truth: Truth) -> list[float]:
    """The factors by which this module may have scaled its queries."""
    named = [_number(truth.module, name) for name in ("scaling", "scale", "softmax_scale")]
    return [1.0, *(scale for scale in named if scale), truth.query.shape[-1] ** -0.5, truth.query.shape[-1] ** -0.25]


def _apart(ours: Tensor | None, truths: list[Tensor], scales: Iterable[float] = (1.0,)) -> float:
    """The largest difference, of the largest entry, from the nearest of the truths that are one and the same matrix."""
    if ours is None or any(ours.shape != truth.shape for truth in truths):
        return float("inf")
    return min(float((ours * s - truth).abs().max() / truth.abs().max()) for truth in truths for s in scales)


def _number(module: nn.Module, name: str) -> float | None:
    value = getattr(module, name, None)
    return float(value) if isinstance(value, int | float) else None


def _module_of(
    names: list[str], checkpoint: Mapping[str, Tensor], found: list[Truth | Unknown]
) -> Truth | Unknown | None:
    """The attention module whose matrices stand under these names, told by what is in them."""
    wanted = {_print(checkpoint[name]) for name in names if checkpoint[name].ndim >= 2}
    scores = [len(wanted & {_print(p) for p in each.module.parameters() if p.ndim >= 2}) for each in found]
    return found[scores.index(max(scores))] if scores and max(scores) else None


def _print(tensor: Tensor) -> tuple[float, float]:
    values = tensor.detach().double()
    return round(float(values.sum()), 5), round(float(values.pow(2).sum()), 5)


def _pattern(paths: list[str]) -> str:
    return ", ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".{layer}.", path) for path in paths))


def shortened(text: str, folder: Path) -> str:
    """A reason in one line, without the place of a file that is gone."""
    text = " ".join(text.replace(str(folder), "").split())
    return text if len(text) < 220 else text[:217] + "..."
