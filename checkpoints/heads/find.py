"""Which families a checkpoint is of, told from names, shapes and its config; nothing is read but what is stored.

Names and shapes come first because configs get lost. They are not enough where a config has a `model_type`: relatives
share names and compute something else, so a type that no fitting family lists is refused, by its name, unless the
caller insists with family="llama". A tensor inside an attention module that a family does not account for is a refusal
too. Several stacks of attention (encoder and decoder, text and vision) are found side by side.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from checkpoints.files import Stored
from checkpoints.files.checkpoint import abridged
from checkpoints.heads.configs import HEAD_COUNTS, part_of
from checkpoints.heads.families import FAMILIES, NO_ATTENTION, REFUSED
from checkpoints.heads.head_layout import HeadLayout
from checkpoints.heads.layout import Family
from checkpoints.heads.places import places, without_attention
from checkpoints.heads.rotary import rotary_of
from checkpoints.heads.stack import NearMissError, Stack, fitted, listed, named, unexplained
from checkpoints.heads.suggest import NoAttentionError, unknown_layout
from checkpoints.heads.towers import with_towers
from checkpoints.heads.weights import Weight

__all__ = ["HEAD_COUNTS", "HeadLayout", "NoAttentionError", "family_named", "find_heads"]


@dataclass
class _Search:
    """What was found so far, and why the rest was not taken."""

    stored: Mapping[str, Stored]
    config: Mapping[str, Any]
    label: str
    insisted: bool
    fits: list[Stack] = field(default_factory=list)
    misfits: list[tuple[Family, ValueError]] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """By attention module, what was left out of it."""
    notes: list[str] = field(default_factory=list)

    def model_type(self, prefix: str) -> Any:
        """What the config says the stack at a prefix is."""
        return part_of(self.config, prefix).get("model_type")

    def try_family(self, family: Family) -> None:
        """Keep every place where names, shapes and all other tensors of the module fit."""
        for prefix, (layers, partly) in places(family, self.stored).items():
            if not partly:
                self._try_place(family, prefix, layers)
                continue
            lacks = next(n for t in _wanted(family) if (n := named(prefix, t, partly[0])) not in self.stored)
            message = f"layer {partly[0]} lacks {lacks}, which other layers have"
            if self._is_listed(family, prefix):
                self._try_place(family, prefix, layers)
                self._leave_out(family, prefix, f"layers {abridged(list(partly))}: {message}")
            else:
                self.misfits.append((family, ValueError(f"{self.label}: {message}")))

    def _try_place(self, family: Family, prefix: str, layers: tuple[int, ...]) -> None:
        strange = unexplained(family, prefix, layers, self.stored)
        clean = tuple(layer for layer in layers if layer not in strange)
        reason = ""
        if strange and self.insisted:
            names = listed(next(iter(strange.values())))
            self.notes.append(f"{names} (and so on) are part of the attention and were not taken into account")
            clean = layers
        elif strange:
            first = next(iter(strange))
            reason = (
                f"layer {first} holds {listed(strange[first])} inside its attention, which {family.name} does not "
                "account for"
            )
            if not clean:
                message = f"{self.label}: {reason}. {_how_to_insist(family)}"
                self.misfits.append((family, ValueError(message)))
                return
        config = part_of(self.config, prefix)
        try:
            sizes = fitted(family, prefix, clean, self.stored, config, self.label)
        except ValueError as error:
            self.misfits.append((family, error))
            return
        if strange and not self.insisted:
            self._leave_out(family, prefix, f"layers {abridged(sorted(strange))}: {reason}")
        self.fits.append(self._with_norms(Stack(family, prefix, clean, config, sizes)))

    def _with_norms(self, stack: Stack) -> Stack:
        """The stack with the norms that it has, or the reason why they cannot be folded in."""
        family, config = stack.family, stack.config
        present = frozenset(
            norm
            for norm in family.norms.values()
            if all(named(stack.prefix, norm, layer) in self.stored for layer in stack.layers)
        )
        relative = self._why_unverified(stack)
        reason = family.unfoldable or relative
        missing = [norm for kind, norm in family.norms.items() if kind.endswith("put_norm") and norm not in present]
        latent = [weight.latent_norm for weight in family.weights.values() if weight.latent_norm]
        if family.pre_norm_setting and config.get(family.pre_norm_setting) is False:
            reason = f"this model normalises after adding to the stream ({family.pre_norm_setting} is false)"
        if reason is None and missing:
            reason = f"there is no {named(stack.prefix, missing[0], stack.layers[0])}, whose gains are to be folded in"
        if reason is None and not family.norms and not family.is_gainless:
            reason = f"the family {family.name} names no norm"
        if reason is None and latent:
            reason = f"a norm stands inside the projections ({latent[0].format(layer=stack.layers[0])})"
        return replace(
            stack,
            present=frozenset() if reason else present,
            unfoldable=reason,
            unrotatable=family.unrotatable or relative,
        )

    def _why_unverified(self, stack: Stack) -> str | None:
        """Why norms and rotation may be those of a relative that shares the names."""
        model_type = stack.config.get("model_type")
        if not stack.family.model_types or model_type in stack.family.model_types:
            return None
        if model_type is None:
            return f"no config says which model this is, and relatives of {stack.family.name} differ in this"
        return f"norms and rotation of {stack.family.name} were not checked for model_type {model_type!r}"

    def chosen(self) -> list[Stack]:
        """Of the stacks that fit at the same place, the one that the config names, else the only one it can be."""
        groups: list[list[Stack]] = []
        for stack in self.fits:
            first = _first_query(stack)
            group = next((group for group in groups if first in {_first_query(one) for one in group}), None)
            if group is None:
                groups.append([stack])
            else:
                group.append(stack)
        found, refusals = [], []
        for group in groups:
            try:
                found.append(self._choice(group))
            except UnverifiedModelTypeError as error:
                refusals.append((group[0], error))
        if not found and refusals:
            raise refusals[0][1]
        for stack, error in refusals:
            self._leave_out(stack.family, stack.prefix, str(error).removeprefix(f"{self.label}: "))
        return found

    def _choice(self, group: list[Stack]) -> Stack:
        """One of several readings of the same tensors."""
        model_type = group[0].config.get("model_type")
        listed_ones = [stack for stack in group if self._is_listed(stack.family, stack.prefix)]
        candidates = listed_ones or group
        if model_type is not None and not listed_ones and not self.insisted:
            candidates = [stack for stack in group if stack.family.any_model_type]
            if not candidates:
                raise UnverifiedModelTypeError(_unverified(self.label, model_type, group))
        if model_type is None:
            candidates = [stack for stack in candidates if not stack.family.needs_model_type] or candidates
        first = candidates[0]
        rivals = [stack.family.name for stack in candidates if _matrices(stack) != _matrices(first)]
        if rivals:
            raise ValueError(
                f"{self.label} could be {first.family.name} or {abridged(rivals)}, with other matrices in each. Say "
                f"which with family={first.family.name!r} or family={rivals[0]!r}"
            )
        return first

    def _is_listed(self, family: Family, prefix: str) -> bool:
        return self.model_type(prefix) in family.model_types

    def _leave_out(self, family: Family, prefix: str, reason: str) -> None:
        self.left_out.setdefault(Stack(family, prefix, (), {}, ()).module, []).append(reason)

    def error(self, family: Family | None) -> ValueError:
        """Why nothing was found."""
        listed_first = [error for one, error in self.misfits if self._is_listed(one, "")]
        listed_first += [error for _, error in self.misfits if isinstance(error, NearMissError)]
        if self.misfits:
            return (listed_first or [error for _, error in self.misfits])[0]
        return unknown_layout(self.stored, self.label, family)


class UnverifiedModelTypeError(ValueError):
    """Names and shapes fit a family that does not list the model's type."""


def find_heads(
    stored: Mapping[str, Stored],
    config: Mapping[str, Any],
    *,
    label: str = "the checkpoint",
    family: Family | str | None = None,
) -> HeadLayout:
    """The layout of the heads among these tensors. Raises ValueError with what was found where no family fits.

    family, if given, is the name of a known one or the caller's own description, and the only one tried.
    """
    asked = family_named(family) if isinstance(family, str) else family
    search = _Search(stored, config, label, insisted=asked is not None)
    if asked is None:
        _require_readable(search)
    for candidate in (asked,) if asked else FAMILIES:
        search.try_family(candidate)
    if not search.fits:
        raise search.error(asked)
    stacks = with_towers(search.chosen())
    notes = [note for stack in stacks for note in _notes(stack, search, family)]
    left_out = [f"{module.rstrip('.')}: {reason}" for module, why in search.left_out.items() for reason in why[:1]]
    left_out += without_attention(stacks, stored, already={*search.left_out})
    return HeadLayout(tuple(stacks), tuple(dict.fromkeys(left_out)), tuple(dict.fromkeys([*notes, *search.notes])))


def family_named(name: str) -> Family:
    """A known family by its name."""
    for family in FAMILIES:
        if family.name == name:
            return family
    raise ValueError(f"no family is called {name!r}; there are {', '.join(family.name for family in FAMILIES)}")


def _require_readable(search: _Search) -> None:
    """Refuse by name what is known not to be read, and what is known to have no attention."""
    model_type = search.config.get("model_type")
    if not isinstance(model_type, str | None):
        raise ValueError(f"{search.label}: the config says model_type {model_type!r}; a name is expected")
    if model_type in NO_ATTENTION:
        raise NoAttentionError(f"{search.label}: no attention here: {model_type} has none")
    if model_type in REFUSED:
        raise ValueError(f"{search.label}: model_type {model_type!r} is not read: {REFUSED[model_type]}")


def _notes(stack: Stack, search: _Search, family: Family | str | None) -> list[str]:
    where = f"{stack.tower}: " if stack.tower else ""
    found = [where + note for note in stack.family.notes]
    gate = stack.family.gate
    if gate and any(named(stack.prefix, gate, layer) in search.stored for layer in stack.layers):
        found.append(
            f"{where}what heads write is multiplied by a gate ({gate}) that depends on the data: ov leaves it out"
        )
    clipped = stack.config.get("clip_qkv") or (stack.config.get("attn_config") or {}).get("clip_qkv")
    if clipped:
        found.append(f"{where}queries, keys and values beyond {clipped} are clipped, which the circuits leave out")
    factor = _score_factor(stack)
    if factor != 1:
        found.append(f"{where}rotary positions multiply every score by {factor:.6g}, which qk leaves out, qk_at_N not")
    model_type = stack.config.get("model_type")
    if family is not None and model_type not in (None, *stack.family.model_types):
        found.append(f"{where}read as {stack.family.name} because the caller insisted: model_type is {model_type!r}")
    elif isinstance(family, Family):
        found.append(f"{where}read as the caller's own family {family.name!r} describes")
    return found


def _score_factor(stack: Stack) -> float:
    """What YaRN multiplies scores with."""
    if stack.unrotatable or stack.family.rotary is None or stack.family.rotary_query is not None:
        return 1.0
    try:
        return rotary_of(stack.config, stack.family.rotary, stack.sizes[0].d_head, stack.layers[0]).factor ** 2
    except (ValueError, KeyError):
        return 1.0


def _unverified(label: str, model_type: Any, group: list[Stack]) -> str:
    names = list(dict.fromkeys(stack.family.name for stack in group))
    return (
        f"{label}: the config says model_type {model_type!r}. Its names and shapes fit {abridged(names, most=4)}, but "
        "no family here lists that type: whether its attention computes the same was not checked. "
        + _how_to_insist(group[0].family)
    )


def _how_to_insist(family: Family) -> str:
    return f"To insist, open_run(..., family={family.name!r}) or --family {family.name!r}; tables then say so"


def _first_query(stack: Stack) -> tuple[str, ...]:
    return tuple(named(stack.prefix, stack.family.query.name, layer) for layer in stack.layers[:1])


def _matrices(stack: Stack) -> dict[str, Weight]:
    """The four matrices, with whole names."""
    weights = stack.family.weights.items()
    return {role: replace(weight, name=stack.prefix + weight.name) for role, weight in weights}


def _wanted(family: Family) -> list[str]:
    return [*family.tensors, *family.requires]
