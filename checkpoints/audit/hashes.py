"""Judge a series by what its server lists, without reading any weights: the hash of every file, one request per step.

Files with one hash are one content. That finds steps that are copies of each other and final weights that are served
early, which is how public series have been found broken; it says nothing of steps whose files differ. Which of two
equal steps is wrong, weights would have to tell: both are named.
"""

from collections import Counter
from collections.abc import Mapping

from tqdm import tqdm

from checkpoints.audit.audit import Audit, missing_before
from checkpoints.audit.fault import Fault
from checkpoints.audit.spacing import gaps
from checkpoints.files.checkpoint import abridged
from checkpoints.run import Run

Contents = Mapping[int, Mapping[str, str]]
"""By step: by file of weights, the hash of its content."""


def audit_hashes(run: Run, *, progress: bool = False) -> Audit:
    """Judge every step of a run on a hub or in a store by the hashes that are listed there."""
    faults = [Fault(step, "gap", missing_before(count)) for step, count in gaps(run.steps)]
    contents: dict[int, Mapping[str, str]] = {}
    for step, entries in tqdm(run.by_step.items(), f"listing {run.name}", disable=None if progress else True):
        if len(entries) > 1:
            faults.append(Fault(step, "duplicate", " and ".join(entry.label for entry in entries)))
            continue
        entry = entries[0]
        if entry.content is None:
            raise ValueError(
                f"{entry.label}: nobody lists the hashes of its files. This is for runs on a hub or in a store; "
                "without --hashes-only its weights are read"
            )
        try:
            contents[step] = entry.content()
        except (OSError, ValueError) as error:
            faults.append(Fault(step, "unreadable", f"{entry.label}: {error}"))
            continue
        if not contents[step]:
            faults.append(Fault(step, "unreadable", f"{entry.label} lists no weights whose content it identifies"))
            del contents[step]
    name = f"{run.name} (by the hashes of its files alone; no weights were read)"
    return Audit(name, run.steps, sorted([*faults, *judge_hashes(contents)], key=lambda fault: fault.step))


def judge_hashes(contents: Contents) -> list[Fault]:
    """The faults that equal files show."""
    if len(contents) < 2:
        return []
    whole: dict[frozenset, list[int]] = {}
    for step, files in contents.items():
        whole.setdefault(frozenset(files.values()), []).append(step)
    last = max(contents)
    faults: list[Fault] = []
    for steps in whole.values():
        if len(steps) < 2 or steps == [0, 1]:  # a warm-up from zero leaves 1 as it was at 0
            continue
        if last in steps:
            same = f"every file is that of the last step, {last}"
            faults += [Fault(step, "final_weights", same) for step in steps if step != last]
            continue
        for step in steps:
            others = abridged([other for other in steps if other != step])
            faults.append(Fault(step, "repeated", f"every file is that of step {others}"))
    alone = {steps[0] for steps in whole.values() if len(steps) == 1}
    return faults + _in_part({step: files for step, files in contents.items() if step in alone})


def _in_part(contents: Contents) -> list[Fault]:
    """Files that two steps share though others of theirs differ; what most steps share is frozen, nobody's fault."""
    uses = Counter(content for files in contents.values() for content in set(files.values()))
    seen: dict[str, int] = {}
    faults = []
    for step, files in sorted(contents.items()):
        for name, content in files.items():
            if 1 < uses[content] <= len(contents) / 2 and content in seen:
                faults.append(Fault(step, "partly_repeated", f"{name} is that of step {seen[content]}"))
            seen.setdefault(content, step)
    return faults
