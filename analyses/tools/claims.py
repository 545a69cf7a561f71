"""A claim is a value: what a paper says and where, what is measured of it, and the rule that judges, fixed beforehand.

A page is a list of claims over one kind of evidence (its runs and controls); `judged` turns them into verdicts. What is
measured is one number per run, in named groups where a claim is about several settings, and per control. The reason
either holds whatever the outcome is, or there is one for each outcome.

Beside its word every verdict says how much that word is worth: the number of runs, an effect size with a 95 % interval,
the rule itself, how often the same word would be earned by nothing, and whether the rule was set before looking.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from analyses.tools.verdicts import CANNOT, WORDS, Verdict

Evidence = TypeVar("Evidence")
Groups = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Measured:
    """What was measured: a sentence for the reader, and the numbers that are judged, one per run and per control.

    n says how many of what these are, where it is not runs.
    """

    text: str
    runs: np.ndarray
    controls: np.ndarray = field(default_factory=lambda: np.empty(0))
    n: str = ""


class Rule(Protocol):
    """Turns numbers into a word, and says what the word is worth."""

    def word(self, measured: Measured) -> str:
        """Holds, holds in part, does not hold."""
        ...

    def effect(self, measured: Measured) -> str:
        """The size of what was seen, with an interval."""
        ...

    def by_chance(self, word: str, measured: Measured) -> str:
        """How often nothing would earn this word; what nothing is, is part of the answer."""
        ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Claim(Generic[Evidence]):
    """One claim. why is a reason that holds whatever the outcome is, or one for each word; says may need the evidence.

    set_before is False where the rule was chosen after a first look at these runs.
    """

    says: str
    printed: str
    measure: Callable[[Evidence], Measured]
    rule: Rule
    why: str | Mapping[str, str]
    set_before: bool = True

    def judge(self, evidence: Evidence) -> Verdict:
        """The verdict on it."""
        measured = self.measure(evidence)
        if not np.isfinite(measured.runs).any():
            return Verdict(self.says, self.printed, measured.text, CANNOT, "nothing could be measured in any run")
        word = self.rule.word(measured)
        against = f" against {len(measured.controls)}" if len(measured.controls) else ""
        worth = [f"n = {measured.n or str(len(measured.runs)) + against}"]
        worth += [self.rule.effect(measured), f"rule: {self.rule}", self.rule.by_chance(word, measured)]
        worth += [] if self.set_before else ["rule chosen after a first look"]
        why = self.why if isinstance(self.why, str) else self.why[word]
        return Verdict(self.says, self.printed, measured.text, word, why, "; ".join(filter(None, worth)))


@dataclass(frozen=True)
class Unjudged(Generic[Evidence]):
    """A claim that cannot be judged here, and why not."""

    says: str
    printed: str
    why: str

    def judge(self, evidence: Evidence) -> Verdict:
        """The row that says so."""
        return Verdict(self.says, self.printed, "", CANNOT, self.why)


def judged(claims: Sequence[Claim[Evidence] | Unjudged[Evidence]], evidence: Evidence) -> list[Verdict]:
    """A verdict on each claim."""
    return [claim.judge(evidence) for claim in claims]


def judged_again(
    claims: Sequence[Claim[Evidence] | Unjudged[Evidence]],
    first: Evidence,
    fresh: Evidence,
    names: tuple[str, str] = ("seeds 0-5", "seeds 20-25"),
) -> list[Verdict]:
    """A verdict on each claim by runs trained after its rule was fixed, beside that of the runs the rule was fixed on.

    The word is that of the fresh runs; where the first earned another, that is said. A claim that the fresh runs cannot
    judge (some settings may have been trained only once) keeps the word of the first, and says that too. What is
    the same to the last word is said once.
    """
    rows = []
    for claim in claims:
        a, b = claim.judge(first), claim.judge(fresh)
        if isinstance(claim, Unjudged) or a.verdict == b.verdict == CANNOT:
            rows.append(a)
        elif a == b:  # as where no seed enters
            rows.append(replace(a, worth=f"{a.worth}; {names[1]}: the same"))
        elif b.verdict == CANNOT:
            rows.append(
                replace(a, measured=f"{names[0]}: {a.measured}", worth=f"{a.worth}; no fresh runs to judge it by")
            )
        else:
            differ = f" On {names[0]} the word was {a.verdict!r}: it differs." if a.verdict != b.verdict else ""
            told = (f"{name}: {row.measured}" for name, row in zip(names, (a, b), strict=True))
            worth = f"{names[1]}: {b.worth}; {names[0]}: {a.worth.split('; rule:')[0]}"
            rows.append(replace(b, measured=". ".join(told), why=f"{b.why}.{differ}" if differ else b.why, worth=worth))
    return rows


def judged_by_both(
    claims: Sequence[Claim[Evidence] | Unjudged[Evidence]], first: Evidence, apart: Evidence, names: tuple[str, str]
) -> list[Verdict]:
    """A verdict on each claim by the runs its rule was fixed on, beside that of fresh ones, trained afterwards.

    The word is the weaker of the two, and where they differ that is said. A claim that the fresh runs cannot judge (some
    settings may have been trained only once) keeps the word of the first, and says that too.
    """
    rows = []
    for claim in claims:
        pair = claim.judge(first), claim.judge(apart)
        a, b = pair
        if isinstance(claim, Unjudged) or a.verdict == b.verdict == CANNOT:
            rows.append(a)
        elif b.verdict == CANNOT:
            told = {"measured": f"{names[0]}: {a.measured}", "worth": f"{a.worth}; no fresh runs to judge it by"}
            rows.append(replace(a, **told))
        else:
            weaker = max(pair, key=lambda row: WORDS.index(row.verdict))
            words = (f"{row.verdict!r} on {name}" for name, row in zip(names, pair, strict=True))
            differ = "" if a.verdict == b.verdict else f". The words differ: {', '.join(words)}"
            measured = ". ".join(f"{name}: {row.measured}" for name, row in zip(names, pair, strict=True))
            worth = f"{names[0]}: {a.worth}. {names[1]}: {_without_rule(b.worth)}"
            rows.append(replace(weaker, measured=measured, why=weaker.why + differ, worth=worth))
    return rows


def _without_rule(worth: str) -> str:
    """The rule of the other seeds is the same, and told once."""
    parts = worth.split("; ")
    return "; ".join(part for part in parts if not part.startswith("rule: "))


def by_group(groups: Groups, form: Callable[[np.ndarray], str]) -> str:
    """Numbers of several settings in one sentence."""
    return "; ".join(f"{name}: {form(values)}" for name, values in groups.items())
