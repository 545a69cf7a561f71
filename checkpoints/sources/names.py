"""What a name counts: `epoch=2-step=1000.ckpt` is step 1000 of epoch 2, `step_20k` is step 20,000.

A number with a word before it says what it counts (WORDS); a bare one (`model_10.pth`, `10/`) counts something that
nobody said, unless the word before it says that it is something else (NOT_COUNTS: `seed1`, `v2`). Which of the names in
a folder are one run is decided for all of them together, in `checkpoints.sources.sequence`.
"""

import re
from dataclasses import dataclass

STEP, NUMBER, TOKEN, EPOCH = "step", "number", "token", "epoch"
UNITS = (STEP, NUMBER, TOKEN, EPOCH)
"""What numbers count, in the order in which they are believed; NUMBER where the name does not say."""

WORDS = {
    **dict.fromkeys(("step", "globalstep", "iteration", "iter", "itr", "it", "update", "batch", "ba"), STEP),
    **dict.fromkeys(("checkpoint", "ckpt", "chkpt", "snapshot"), NUMBER),
    **dict.fromkeys(("token", "tok"), TOKEN),
    **dict.fromkeys(("epoch", "ep"), EPOCH),
}
"""What a number may be called, in the order in which it is believed: `epoch=2-step=1000` is step 1000."""

NOT_COUNTS = re.compile(
    "seed run version v fold layer layers shard rank part trial exp experiment size head heads gpu device split worker "
    "dim width depth mp tp pp of task stage phase ingredient lr wd bs patch vocab ctx consolidated "
    "block blocks expert experts chunk bucket group slice process proc host node tensor param module file".replace(
        " ", "|"
    )
)
"""Words whose numbers are no time: several seeds are several runs."""

MARKED = re.compile(r"(?<![a-z])(best|last|latest|final|ema|swa|avg|averaged?|interrupt|emergency)(?![a-z])", re.I)
"""Copies and averages that trainers keep beside the numbered checkpoints."""

FILE_ENDINGS = re.compile(r"(\.pth\.tar|\.safetensors|\.pth?|\.bin|\.ckpt|\.npz|\.msgpack)$", re.I)
"""How files of weights end."""

_SCALES = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = r"(\d+(?:\.\d+)?(?:e\d+|[kmbt])|\d+)(?![a-z0-9])(?!\.\d+(?![a-z0-9]))"  # no part of a decimal
_FAIRSEQ = re.compile(r"checkpoint_(\d+)_(\d+)")
_STAGE = re.compile(r"(?<![a-z])(?:stage|phase)[-_=]?(\d+)")
_GLUED = re.compile(r"\d[a-z]+$")  # the 5 of a1b5 is part of a name
_DECIMAL = re.compile(r"(?<!\d)(?<!\d\.)\d+\.\d+(?![a-zA-Z0-9])")
_ANY_NUMBER = re.compile(
    r"(?<!\d)(?<!\d\.)(\d+\.\d+(?:e\d+|[kmbt])|\d+(?:e\d+|[kmbt])?)(?![a-z0-9])(?!\.\d+(?![a-z0-9]))"
)


@dataclass(frozen=True)
class Count:
    """A number in a name: what it counts, and where it stands."""

    unit: str
    number: int
    start: int
    end: int


@dataclass(frozen=True)
class Stage:
    """A stage of training that a name speaks of: its number, and all that is said of it (`stage2-ingredient1`)."""

    number: int
    text: str

    @property
    def is_branch(self) -> bool:
        """Whether more is said than the number: one of several that may have begun at the same point."""
        return not re.fullmatch(r"(stage|phase)[-_=]?\d+", self.text, re.I)


def number_of(text: str) -> int:
    """20000 from 20k, 1500 from 1.5k, 100000 from 1e5, 12 from 0012."""
    if "e" in text.lower():
        return round(float(text))
    scale = _SCALES.get(text[-1].lower(), 1)
    return int(text) if scale == 1 else round(float(text[:-1]) * scale)


def stem(name: str) -> str:
    """A name without the ending of a file of weights."""
    return FILE_ENDINGS.sub("", name)


def counts_in(name: str) -> dict[str, Count]:
    """By unit, what the words of a name count; {} where no number has such a word."""
    lower = name.lower()
    fairseq = _FAIRSEQ.fullmatch(stem(lower))
    if fairseq:  # checkpoint_EPOCH_UPDATES.pt
        return {
            STEP: Count(STEP, int(fairseq[2]), *fairseq.span(2)),
            EPOCH: Count(EPOCH, int(fairseq[1]), *fairseq.span(1)),
        }
    found: dict[str, Count] = {}
    for word, unit in WORDS.items():
        match = re.search(rf"(?<![a-z]){word}s?[-_=. ]{{0,2}}{_NUMBER}", lower)
        if match and unit not in found:
            found[unit] = Count(unit, number_of(match[1]), *match.span(1))
    return found


def believed(counts: dict[str, Count]) -> Count | None:
    """Of several counts in a name the one nearest to updates."""
    return next((counts[unit] for unit in UNITS if unit in counts), None)


def step_in(name: str) -> int | None:
    """1000 from step1000, global_step_1000, model-step-1000.pt, epoch=2-step=1000.ckpt, checkpoint-1000; else None."""
    count = believed(counts_in(name))
    return count.number if count else None


def bare_numbers(name: str) -> list[Count]:
    """The numbers of a name that may count something although no word says so."""
    text = stem(name).lower()
    return [
        Count(NUMBER, number_of(match[1]), *match.span(1))
        for match in _ANY_NUMBER.finditer(text)
        if not NOT_COUNTS.fullmatch(_word_before(text, match.start())) and not _GLUED.search(text[: match.start()])
    ]


def _word_before(text: str, place: int) -> str:
    match = re.search(r"([a-z]+)[-_=. ]*$", text[:place])
    return match[1] if match else ""


def stage_in(name: str) -> Stage | None:
    """stage2-ingredient1 from stage2-ingredient1-step1000-tokens3B; None where no stage is named."""
    lower = name.lower()
    match = _STAGE.search(lower)
    if not match:
        return None
    ends = [_start_of_word(lower, count.start) for count in counts_in(lower).values() if count.start > match.end()]
    end = min(ends, default=match.end())
    return Stage(int(match[1]), name[match.start() : end].strip("-_=. /"))


def _start_of_word(text: str, place: int) -> int:
    match = re.search(r"[a-z]+[-_=. ]*$", text[:place])
    return match.start() if match else place


def pattern_of(name: str, count: Count, placeholder: str = "{step}") -> str:
    """The name as a pattern: the count as a placeholder, every other number that may change as *."""
    others = [*counts_in(name).values(), *bare_numbers(name)]
    spans = {(one.start, one.end) for one in [count, *others]} | {one.span() for one in _DECIMAL.finditer(name)}
    text, place = "", 0
    for start, end in sorted(spans):
        text += name[place:start] + (placeholder if start == count.start else "*")
        place = end
    return text + name[place:]
