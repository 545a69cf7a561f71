"""Which of many names are one run, in which order, and on which axis.

    step10, step20, main                                 steps 10 and 20; main is left out, and said to be
    stage1-step100, stage2-step50                        one axis: 100, 150; each keeps its stage and its own step
    stage1-step100, stage2-a-step50, stage2-b-step50     the trunk, step 100, and how to open each branch

Names with words (`step`, `iter`, `epoch`) come before names with a bare number. Where two readings are possible, all of
them are named, each as the call that asks for it, and none is taken.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from checkpoints.files.checkpoint import abridged
from checkpoints.files.shards import COUNTED
from checkpoints.sources.names import (
    MARKED,
    STEP,
    TOKEN,
    UNITS,
    Count,
    Stage,
    bare_numbers,
    believed,
    counts_in,
    pattern_of,
    stage_in,
    stem,
)

Call = Callable[[str], str]
"""From a pattern (`model_{step}.pth`) to the call that opens what it matches."""


@dataclass(frozen=True)
class Placed:
    """A name with its place in the run. step is on the run's axis, which goes on from one stage to the next."""

    name: str
    step: int
    stage: str | None = None
    stage_step: int | None = None
    """The step that the name says, which begins anew with each stage in some runs."""
    tokens: int | None = None
    """Tokens seen, over all stages, where the names say it."""


@dataclass(frozen=True)
class NamedRun:
    """What was made of the names: the run, what its numbers count, what was left out, and what a reader must know."""

    placed: tuple[Placed, ...]
    unit: str = STEP
    left_out: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Reading:
    """One name with the number that is believed."""

    name: str
    count: Count
    tokens: int | None
    stage: Stage | None


def matching(names: Iterable[str], pattern: str | None) -> list[str]:
    """The names that a pattern such as "step*" matches, or one of several: "stage1-*,stage2-ingredient1-*"."""
    wanted = [one.strip() for one in (pattern or "*").split(",")]
    return [name for name in names if any(fnmatchcase(name, one) for one in wanted)]


def run_in_names(names: Sequence[str], call: Call, select: Call | None = None) -> NamedRun:
    """The run that these names are; no entries where none of them counts anything.

    call phrases how one asks for the names of a pattern with {step} in it, select for those that match a pattern with *
    (`open_run(..., revisions="stage1-*")`). Raises ValueError where several readings are possible.
    """
    names = sorted(names)
    readings = _worded(names) or _bare(names, call)
    if not readings:
        return NamedRun((), left_out=tuple(names))
    readings = _of_one_unit(_without_copies(_unmarked(readings)))
    _require_one_series(readings, call)
    placed, notices = _on_one_axis(readings, select or call)
    taken = {one.name for one in readings}
    left_out = tuple(name for name in names if name not in taken)
    return NamedRun(tuple(sorted(placed, key=lambda p: (p.step, p.name))), readings[0].count.unit, left_out, notices)


def _worded(names: Sequence[str]) -> list[_Reading]:
    found = []
    for name in names:
        counts = counts_in(name)
        count = believed(counts)
        if count:
            tokens = counts[TOKEN].number if TOKEN in counts else None
            found.append(_Reading(name, count, tokens, stage_in(name)))
    return found


def _bare(names: Sequence[str], call: Call) -> list[_Reading]:
    """Names alike but for one number: `model_10.pth`, `model_20.pth`."""
    groups: dict[str, list[tuple[str, list[Count]]]] = {}
    for name in names:
        counts = bare_numbers(name)
        if counts and not COUNTED.fullmatch(name) and not MARKED.search(name):
            groups.setdefault(pattern_of(name, counts[0], "*"), []).append((name, counts))
    series = {pattern: members for pattern, members in groups.items() if len(members) > 1}
    by_stem = {stem(pattern) for pattern in series}
    if len(by_stem) > 1:
        calls = [call(_varying(members, call)[0]) for members in series.values()]
        raise ValueError(f"several series of numbered checkpoints lie together. Open one of them: {_choices(calls)}")
    found = []
    for members in series.values():
        position = _varying(members, call)[1]
        found += [_Reading(name, counts[position], None, None) for name, counts in members]
    return found


def _varying(members: Sequence[tuple[str, list[Count]]], call: Call) -> tuple[str, int]:
    """The pattern of names that are alike but for one number, and which number that is."""
    first, counts = members[0]
    changing = [i for i in range(len(counts)) if len({c[i].number for _, c in members}) > 1]
    if len(changing) > 1:
        calls = [call(pattern_of(first, counts[i])) for i in changing]
        raise ValueError(
            f"{abridged([name for name, _ in members], 4)}: {len(changing)} numbers change from name to name and "
            f"nothing says which one is the step. Say it: {_choices(calls)}"
        )
    position = changing[0] if changing else 0
    return pattern_of(first, counts[position]), position


def _unmarked(readings: list[_Reading]) -> list[_Reading]:
    """Without `best-step10`, where there are numbered ones that are not marked so."""
    return [one for one in readings if not MARKED.search(one.name)] or readings


def _without_copies(readings: list[_Reading]) -> list[_Reading]:
    """Of one checkpoint in two formats (`step10.pt`, `step10.safetensors`) the safetensors."""
    safe = {stem(one.name) for one in readings if one.name.endswith(".safetensors")}
    return [one for one in readings if one.name.endswith(".safetensors") or stem(one.name) not in safe]


def _of_one_unit(readings: list[_Reading]) -> list[_Reading]:
    """Steps and epochs are not on one axis: those that say the most."""
    units = {one.count.unit for one in readings}
    unit = next(unit for unit in UNITS if unit in units)
    return [one for one in readings if one.count.unit == unit]


def _require_one_series(readings: Sequence[_Reading], call: Call) -> None:
    """Refuse two runs in one folder: several patterns that have steps in common. One stray copy is left to its step."""
    series: dict[str, list[_Reading]] = {}
    for one in readings:
        series.setdefault(pattern_of(one.name, one.count), []).append(one)
    several = {pattern: members for pattern, members in series.items() if len(members) > 1}
    claimed = Counter((one.stage, one.count.number) for members in several.values() for one in members)
    if len(several) > 1 and max(claimed.values()) > 1:
        step, times = next(((step, times) for (_, step), times in claimed.items() if times > 1))
        raise ValueError(
            f"{len(several)} series of checkpoints lie together: step {step} is there {times} times. Open one of them: "
            f"{_choices([call(pattern) for pattern in several])}"
        )


def _on_one_axis(readings: Sequence[_Reading], select: Call) -> tuple[list[Placed], tuple[str, ...]]:
    """Stages one after the other; what forks from the trunk is left out, each with the pattern that opens it."""
    if not any(one.stage for one in readings):
        return [Placed(one.name, one.count.number, tokens=one.tokens) for one in readings], ()
    by_stage: dict[str, list[_Reading]] = {}
    for one in readings:
        by_stage.setdefault(one.stage.text if one.stage else "", []).append(one)
    trunk, branches = _trunk_of({members[0].stage for members in by_stage.values() if members[0].stage})
    names = [stage.text for stage in trunk]
    if not trunk:
        calls = [select(_pattern(by_stage[stage.text])) for stage in branches]
        raise ValueError(f"these stages began at the same point and are not one run. Open one: {_choices(calls)}")
    placed, said = _joined([by_stage[name] for name in names])
    notices = [said] if len(trunk) > 1 else []
    if branches:
        before = ",".join(_pattern(by_stage[name]) for name in names)
        own = {stage.text: _pattern(by_stage[stage.text]) for stage in branches}
        ways = [f"{name}: {select(f'{before},{only}')}, or alone: {select(only)}" for name, only in own.items()]
        notices.append(
            f"only {', '.join(names)} is opened: what follows forks, or comes after a fork, and is not one sequence "
            f"with it. To open {'; '.join(ways)}"
        )
    if "" in by_stage:
        notices.append(f"left out, since no stage is named: {abridged([one.name for one in by_stage['']])}")
    return placed, tuple(notices)


def _pattern(members: Sequence[_Reading]) -> str:
    """What matches the names of one stage."""
    name, stage = members[0].name, members[0].stage
    assert stage is not None
    return name[: name.index(stage.text) + len(stage.text) + 1] + "*"


def _trunk_of(stages: set[Stage]) -> tuple[list[Stage], list[Stage]]:
    """The stages that follow each other, and those that forked from one of them or came after a fork."""
    trunk: list[Stage] = []
    ordered = sorted(stages, key=lambda stage: (stage.number, stage.text))
    for number in sorted({stage.number for stage in ordered}):
        here = [stage for stage in ordered if stage.number == number]
        plain = [stage for stage in here if not stage.is_branch] or (here if len(here) == 1 else [])
        if len(plain) != 1:
            break
        trunk += plain
    return trunk, [stage for stage in ordered if stage not in trunk]


def _joined(stages: Sequence[Sequence[_Reading]]) -> tuple[list[Placed], str]:
    """Stage after stage; one whose own count begins anew is moved to the end of the one before."""
    placed: list[Placed] = []
    told: list[str] = []
    for members in stages:
        name = members[0].stage.text if members[0].stage else ""
        steps, tokens = [one.count.number for one in members], [one.tokens for one in members]
        last = max((one.step for one in placed), default=0)
        added = last if placed and min(steps) <= last else 0
        here = [
            Placed(one.name, one.count.number + added, name, one.count.number, seen)
            for one, seen in zip(members, _tokens_since_the_beginning(placed, tokens), strict=True)
        ]
        if placed:
            again = [one.name for one in here if one.step <= last]
            same = f" ({', '.join(again)} is where the stage before ends: left out)" if again else ""
            told.append(f"{name} counts anew, {added} is added{same}" if added else f"{name} counts on")
            here = [one for one in here if one.step > last]
        placed += sorted(here, key=lambda one: one.step)
    names = ", ".join(members[0].stage.text for members in stages if members[0].stage)
    return placed, f"{names} on one axis: {'; '.join(told)}. run.axis has the steps of each stage"


def _tokens_since_the_beginning(before: Sequence[Placed], tokens: Sequence[int | None]) -> list[int | None]:
    """Tokens of a stage over all stages; None where those before are not known."""
    if not before:
        return list(tokens)
    seen = before[-1].tokens
    known = [count for count in tokens if count is not None]
    if seen is None or not known:
        return [None] * len(tokens)
    added = seen if min(known) <= seen else 0
    return [None if count is None else count + added for count in tokens]


def _choices(calls: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(calls))
