"""What is told at the end of a measurement: how much there is, what was left out, and what could not be read."""

import pandas as pd


def outcome(table: pd.DataFrame, source: str) -> tuple[list[str], list[str]]:
    """Lines to print, and problems: checkpoints that could not be read or measured, which the exit code says too."""
    attrs, missing = table.attrs, sum(table["value"].isna())
    told = [f"{len(table)} numbers of {len(attrs['steps'])} checkpoints ({missing} missing, with the reason)"]
    for text, lines in (("left out", "left_out"), ("note", "notes")):
        told += [f"{text}: {line}" for line in attrs.get(lines, [])]
    if attrs["condemned"]:
        steps = ", ".join(attrs["condemned"])
        told.append(f"left out, condemned by the audit: step {steps}. `probes audit {source}` says why")
    problems = []
    unread = {step: why for step, why in attrs["condemned"].items() if why.startswith("unreadable")}
    if unread:
        step, reason = next(iter(unread.items()))
        problems.append(f"{len(unread)} steps could not be read, the first {step}: {reason}")
    if attrs["failed"]:
        step, reason = next(iter(attrs["failed"].items()))
        problems.append(f"{len(attrs['failed'])} steps could not be measured, the first {step}: {reason}")
        problems.append("The same command again tries these, and only these, once more")
    return told, problems
