"""An attention layout that nobody described yet: a `Family` filled in from the names and shapes that are there.

What a name cannot tell is assumed and said: square matrices are taken to be stored (out, in), as torch.nn.Linear does,
and fused ones to hold all queries, then all keys, then all values. A checkpoint in which nothing asks for keys has no
attention, which is another error than an unknown one.
"""

import re
from collections.abc import Mapping

from checkpoints.files import Stored
from checkpoints.files.checkpoint import abridged
from checkpoints.heads.layout import Family, Weight

_ROLES = {
    "query": r"(to_|w|W_?|project_|lin_)?(q|query|queries|Q)(_?proj|_lin|_linear|_net)?",
    "key": r"(to_|w|W_?|project_|lin_)?(k|key|keys|K)(_?proj|_lin|_linear|_net)?",
    "value": r"(to_|w|W_?|project_|lin_)?(v|value|values|V)(_?proj|_lin|_linear|_net)?",
    "output": r"(to_|w|W_?)?(o|out|output|O)(_?proj|_lin|_linear|_net)?|dense|proj|c_proj|\w*att(n|ention)?_out",
    "fused": r"\w*qkv(_proj|_net)?|W?qkv|c_attn|query_key_value|in_proj|att_proj|qkv",
}
_LAYER = re.compile(r"(?<![^.])\d+(?![^.])")
_FIRST = re.compile(r"(^|[._])0([._])")
_LIKE = re.compile(
    r"attn|attention|W_[QKVO]|(^|[._])(to_|w_?)?(q|k|v|o|qkv|query|key|value|queries|keys|values)(_?proj|_lin)?([._]|$)",
    re.IGNORECASE,
)


_EXAMPLE = (
    'open_run(..., family=checkpoints.Family("mine", query=checkpoints.Weight("blocks.{layer}.attn.q.weight", '
    '"(head d_head) d_model"), key=..., value=..., output=checkpoints.Weight(..., "d_model (head d_head)")))'
)


class NoAttentionError(ValueError):
    """A model in which there is no attention to be found; its other matrices can be measured."""


def unknown_layout(stored: Mapping[str, Stored], label: str, family: Family | None) -> ValueError:
    """What to say of a checkpoint that no family fits."""
    like = [name for name in stored if _LIKE.search(name) and len(stored[name].shape) > 1]
    like = [name for name in like if _FIRST.search(name)] or like
    shown = abridged([f"{name} {stored[name].shape}" for name in like], most=12)
    if family is not None:
        return ValueError(
            f"{label} has no attention as the family {family.name!r} describes it ({family.query.name}). Names that "
            f"look like attention: {shown}"
        )
    found = suggestion(stored)
    own = (
        'Weights that are not those of attention heads: measure(run, circuits={"mine": {"tensors": ["w"], "pattern": '
        '"row column -> 1 1 row column"}}), see checkpoints.circuits. A run written with RunWriter(..., circuits=...) '
        "says so itself; one of a solvable model that does not is older than that: train it again"
    )
    if not like:
        names = abridged([f"{name} {entry.shape}" for name, entry in stored.items()], most=6)
        return NoAttentionError(
            f"{label}: no attention here: no tensor is named as queries are. It holds {names}. {own}"
        )
    if found is None:
        return ValueError(
            f"{label} has no attention in a layout known here. Names that look like attention: {shown}, among which "
            f"query, key, value and output are not to be told. Describe them: {_EXAMPLE}. {own}"
        )
    text, assumed = found
    return ValueError(
        f"{label} has no attention in a layout known here. Names that look like attention: {shown}. Described from "
        f"these names and shapes, to be checked: open_run(..., family=checkpoints.{text}){assumed}. {own}"
    )


def suggestion(stored: Mapping[str, Stored]) -> tuple[str, str] | None:
    """A filled-in Family as code, and what it assumes; None where nothing looks like queries."""
    modules: dict[str, dict[str, str]] = {}
    for name, entry in stored.items():
        if len(entry.shape) not in (2, 3):
            continue
        steps = name.removesuffix(".weight").removesuffix(".linear").removesuffix("_weight").split(".")
        if steps[-1].isdigit() and len(steps) > 1:  # to_out.0.weight
            steps = steps[:-1]
        for role, pattern in _ROLES.items():
            if re.fullmatch(pattern, steps[-1]):
                modules.setdefault(".".join(steps[:-1]), {}).setdefault(role, name)
    for module, roles in modules.items():
        if {"query", "key", "value"} <= {*roles} or "fused" in roles:
            output = roles.get("output") or _output_near(module, modules)
            if output is not None:
                return _described({**roles, "output": output}, stored)
    return None


def _output_near(module: str, modules: Mapping[str, Mapping[str, str]]) -> str | None:
    """The output projection beside or under the module's parent (BERT's attention.output.dense)."""
    parent = module.rpartition(".")[0]
    near = [roles["output"] for place, roles in modules.items() if place.startswith(parent) and "output" in roles]
    return next((name for name in near if not re.search(r"mlp|ffn|ff\.|feed|intermediate", name)), None)


def _described(roles: Mapping[str, str], stored: Mapping[str, Stored]) -> tuple[str, str]:
    if "fused" in roles and "query" not in roles:
        shape = stored[roles["fused"]].shape
        axes = "(part head d_head) d_model" if shape[0] > shape[-1] else "d_model (part head d_head)"
        weights = {
            role: Weight(_template(roles["fused"]), axes, part) for part, role in enumerate(("query", "key", "value"))
        }
        assumed = ", if it holds all queries, then all keys, then all values, equally many of each"
        is_linear = shape[0] > shape[-1]
    else:
        is_linear, assumed = _is_linear([stored[roles[role]].shape for role in ("query", "key", "value")])
        axes = "(head d_head) d_model" if is_linear else "d_model (head d_head)"
        weights = {
            role: Weight(_template(roles[role]), _by_head(stored[roles[role]].shape) or axes)
            for role in ("query", "key", "value")
        }
    written = stored[roles["output"]].shape
    output = "d_model (head d_head)" if is_linear else "(head d_head) d_model"
    weights["output"] = Weight(_template(roles["output"]), _by_head(written, writes=True) or output)
    given = ", ".join(f"{role}={_code(weight)}" for role, weight in weights.items())
    return f'Family("mine", {given})', assumed


def _is_linear(shapes: list[tuple[int, ...]]) -> tuple[bool, str]:
    """Whether matrices are stored (out, in): the axis that all have in common is the model's."""
    flat = [shape for shape in shapes if len(shape) == 2]
    firsts, lasts = {shape[0] for shape in flat}, {shape[-1] for shape in flat}
    if len(lasts) == 1 and len(firsts) > 1:
        return True, ""
    if len(firsts) == 1 and len(lasts) > 1:
        return False, ""
    return True, ", if matrices are stored (out, in) as torch.nn.Linear does" if flat else ""


def _by_head(shape: tuple[int, ...], *, writes: bool = False) -> str | None:
    """The axes of a tensor with one for heads: the longest of its axes is taken to be the model's."""
    if len(shape) != 3:
        return None
    longest = max(range(3), key=lambda axis: shape[axis])
    others = ["head", "d_head"]
    return " ".join("d_model" if axis == longest else others.pop(0) for axis in range(3))


def _template(name: str) -> str:
    """A name with {layer} for its first number."""
    return _LAYER.sub("{layer}", name, count=1)


def _code(weight: Weight) -> str:
    part = f", {weight.part}" if "part" in weight.axes else ""
    return f'checkpoints.Weight("{weight.name}", "{weight.axes}"{part})'
