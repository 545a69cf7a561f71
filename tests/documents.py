"""Documents with code in them: their blocks, what each line of one gives, and whether its comment says so.

A comment behind a line that begins with numbers, a shape or a string is what the line must give, to the digits printed;
so are the rows of a table in comments below it.
"""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
BLOCK = re.compile(r"(?:^<!-- not run: (?P<why>.+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"


@dataclass(frozen=True)
class Block:
    """A fenced block, the line it begins at, and why it is not run, if it says so."""

    line: int
    language: str
    code: str
    why_not_run: str | None

    @property
    def fate(self) -> str:
        if self.why_not_run:
            return f"not run: {self.why_not_run}"
        return {"python": "run", "": "commands parsed", "math": "a formula"}.get(self.language, "")


def blocks(text: str) -> list[Block]:
    return [
        Block(text[: match.start("code")].count("\n") + 1, match["language"], match["code"], match["why"])
        for match in BLOCK.finditer(text)
    ]


def statements(name: str, block: Block, namespace: dict[str, Any]) -> Iterator[tuple[int, Any, str, list[str]]]:
    """Run a block statement by statement: line, value, the comment behind it, and those on the lines below it."""
    comments = {
        token.start[0]: (token.string.removeprefix("#").strip(), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(block.code).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.parse(block.code).body:
        line, source = block.line + node.lineno, ast.get_source_segment(block.code, node) or ""
        try:
            if isinstance(node, ast.Expr):
                value = eval(source, namespace)
            else:
                exec(source, namespace)
                value = namespace[node.targets[0].id] if _names_one(node) else None
        except Exception as error:
            raise AssertionError(f"{name}, line {line}: {source}\n{type(error).__name__}: {error}") from error
        last, below = node.end_lineno or node.lineno, []
        while comments.get(last + 1 + len(below), ("", False))[1]:
            below.append(comments[last + 1 + len(below)][0])
        yield line, value, comments.get(last, ("", False))[0], below


def _names_one(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)


def compare(value: Any, comment: str, where: str) -> list[str]:
    """The numbers, shape or string that a comment begins with are those of the value; what was compared."""
    if shape := re.match(r"\[\d+(?:, \d+)*\]", comment):
        assert list(value.shape) == json.loads(shape[0]), f"{where}: the shape is {list(value.shape)}"
        return [shape[0]]
    if string := re.match(r"'[^']*'", comment):
        assert value == string[0].strip("'"), f"{where}: it is {value!r}"
        return [string[0]]
    if numbers := re.match(rf"{NUMBER}(?:, {NUMBER})*(?![\w.])", comment):
        printed = numbers[0].split(", ")
        found = np.asarray(value, dtype=float).ravel()
        as_printed = [as_text(number, text) for number, text in zip(found, printed, strict=False)]
        assert as_printed == printed, f"{where}: it is {as_printed}"
        return printed
    return []


def compare_table(value: Any, below: list[str], where: str) -> list[str]:
    """The rows of a table in comments, the first of which names columns, are those of the value; what was compared."""
    if not below:
        return []
    columns = below[0].split()
    rows = [row.split()[: len(columns)] for row in below[1:]]
    assert isinstance(value, pd.DataFrame), f"{where}: a table is printed, it is {type(value)}"
    found = [
        [as_text(cell, text) for cell, text in zip(cells, row, strict=True)]
        for cells, row in zip(value[columns].to_numpy().tolist(), rows, strict=True)
    ]
    assert found == rows, f"{where}: it is {found}"
    return [cell for row in rows for cell in row]


def as_text(value: Any, like: str) -> str:
    """A number with as many digits as the text has that it is compared with; anything else as it is."""
    if isinstance(value, str):
        return value
    mantissa, e, _ = like.partition("e")
    return f"{value:.{len(mantissa.partition('.')[2])}{e or 'f'}}"
