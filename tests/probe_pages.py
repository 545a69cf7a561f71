"""One page per probe, from the catalogue: `python -m tests.probe_pages` writes docs/probes/.

Formula, source, what random weights score and what the number cannot tell are the probe's own; the levels and the
numbers of the example are computed. `tests/test_probe_pages.py` holds the committed pages to the code.
"""

import math
import sys
from pathlib import Path
from textwrap import fill

import numpy as np

from probes.measuring.catalogue import PROBES, Probe

FOLDER = Path(__file__).parents[1] / "docs" / "probes"
RUN = "checkpoints/reference/linear-icl"
STEPS = (81, 305, 1734)

SHAPES = {
    "heads of 16 in 32 dimensions": (32, 32, 16),
    "heads of 64 in 768 (GPT-2 small)": (768, 768, 64),
    "heads of 128 in 4096 (Llama 7B)": (4096, 4096, 128),
    "a matrix of 768 by 3072, not factored": (768, 3072, None),
}
READS = {
    "current": "one checkpoint",
    "current, reference": "one checkpoint, and a reference: the last one unless `references=` says otherwise",
    "current, previous": "one checkpoint, and an earlier one, over the stretch that `table.attrs['drift_over']` states",
}
FUNCTIONS = {
    "norm": "frobenius_norm",
    "subspace_drift_per_step": "subspace_drift",
}
"""Functions of a matrix that are called otherwise than their probe."""


def page(probe: Probe) -> str:
    """Everything that the catalogue knows of one probe."""
    function = FUNCTIONS.get(probe.name, probe.name)
    lines = [
        f"# {probe.name}",
        "",
        f"{probe.definition[0].upper()}{probe.definition[1:]}."
        if probe.definition[0].isalpha()
        else f"`{probe.definition}`",
        "",
        "```math",
        probe.formula,
        "```",
        "",
        fill(_letters(probe), 120),
        "",
        "| | |",
        "|---|---|",
        f"| reads | {READS[probe.reads]} |",
        f"| gives | {_gives(probe)} |",
        f"| source | {probe.citation} |",
        f"| of one matrix | `probes.{function}` |",
        "",
        "## What random weights score",
        "",
        fill(probe.null, 120),
        "",
        *_levels(probe),
        "## What it cannot tell",
        "",
        fill(probe.cannot_tell, 120),
        "",
        "## Try it",
        "",
        *_example(probe),
        "",
        "[All probes](README.md)",
    ]
    return "\n".join(lines) + "\n"


def index() -> str:
    """The list of all pages."""
    lines = [
        "# Probes",
        "",
        "What `probes.measure` can read off the weights of a checkpoint. Each page gives the formula, where it comes",
        "from, what random weights score, and what the number must not be taken for. `python -m tests.probe_pages`",
        "writes the pages from the catalogue. A probe of your own: [how to extend](../extend.md).",
        "",
        "| probe | definition | random weights, heads of 16 in 32 |",
        "|---|---|---|",
    ]
    for probe in PROBES.values():
        level = probe.null_levels(*SHAPES["heads of 16 in 32 dimensions"])
        shown = "-" if math.isnan(level[0]) else _numbers(level)
        definition = probe.definition.replace("|", "\\|")
        lines.append(f"| [{probe.name}]({probe.name}.md) | {definition} | {shown} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Every file of the folder, by name."""
    return {"README.md": index()} | {f"{probe.name}.md": page(probe) for probe in PROBES.values()}


def _letters(probe: Probe) -> str:
    if probe.reads == "current":
        return "where $M$ is the matrix of a circuit and $s_1 \\ge s_2 \\ge \\dots$ are its singular values."
    if probe.reads == "current, reference":
        return "where $M(t)$ is the matrix of a circuit and $M_\\mathrm{ref}$ that of the reference."
    if "drift}" in probe.formula:
        return "where the drift is that of [subspace_drift](subspace_drift.md), from step $t_0$ to step $t$."
    return "where $M$ is the matrix of a circuit, $M_0$ the earlier one; $P$ and $P_0$ project on their row spaces."


def _gives(probe: Probe) -> str:
    unit = probe.unit.replace("|", "\\|")
    if probe.components is None:
        return f"one number per head [{unit}]"
    return f"{probe.components} numbers per head, `component` 0 to {probe.components - 1} [{unit}]"


def _levels(probe: Probe) -> list[str]:
    if probe.null_level is None:
        return []
    rows = [f"| {shape} | {_numbers(probe.null_levels(*SHAPES[shape]))} |" for shape in SHAPES]
    heading = "level" if probe.components is None else "level at k = 0, 1, 2 ..."
    call = f"`probes.measuring.catalogue.PROBES[{probe.name!r}].null_levels(rows, columns, inner)` gives others."
    return [f"| weights | {heading} |", "|---|---|", *rows, "", call.replace("'", '"'), ""]


def _numbers(levels: np.ndarray) -> str:
    return ", ".join(f"{level:.3g}" for level in levels)


def _example(probe: Probe) -> list[str]:
    """Lines of Python with what they give: of the run that comes with the project, or of a head that is moved a little.

    The circuits of that run have full rank, so that their row space is everything and never moves.
    """
    if probe.reads == "current":
        k = ", 1" if probe.components else ""
        call = f'probes.by_head(table, "{probe.name}", "ov"{k}).loc[[{", ".join(map(str, STEPS))}]]'
        lines = ["import probes", "", f'table = probes.measure("{RUN}", probes=["{probe.name}"])']
    else:
        function = FUNCTIONS.get(probe.name, probe.name)
        call = f"probes.{function}(earlier, later{', normalised=True' if 'distance' in function else ''})"
        if probe.name.endswith("per_step"):
            call += " / 250  # if they are 250 steps apart"
        lines = [
            "import numpy as np, probes",
            "",
            "rng = np.random.default_rng(0)",
            "earlier = probes.Factored(rng.normal(size=(32, 16)), rng.normal(size=(16, 32)))",
            "moved = 0.1 * rng.normal(size=(16, 32))",
            "later = probes.Factored(earlier.left + moved.T, earlier.right + moved)",
        ]
    namespace: dict = {}
    exec("\n".join(lines), namespace)
    call, _, note = call.partition("  # ")
    values = np.asarray(eval(call, namespace), dtype=float).ravel()
    digits = 3 if values.min() > 1e-2 else 6
    said = ", ".join(f"{value:.{digits}f}" for value in values)
    return ["```python", *lines, f"{call}  # {said}{f': {note}' if note else ''}", "```"]


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/probes/{name}\n")


if __name__ == "__main__":
    main()
