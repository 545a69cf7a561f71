"""What families are put together from: four projections, separate or fused, as libraries usually store them."""

from typing import TypedDict

from checkpoints.heads.weights import Weight

LINEAR_IN, LINEAR_OUT = "(head d_head) d_model", "d_model (head d_head)"
"""torch.nn.Linear keeps (out, in): heads are rows of what reads the residual stream and columns of what writes it."""

POST_NORM = "this model normalises after adding to the stream: no gain stands between the stream and a head"


class Four(TypedDict):
    """The four matrices of a family."""

    query: Weight
    key: Weight
    value: Weight
    output: Weight


def linear(module: str, query: str, key: str, value: str, output: str, writes: str = LINEAR_OUT) -> Four:
    """Query, key, value and output as four separate torch.nn.Linear."""
    return Four(
        query=Weight(module + query, LINEAR_IN),
        key=Weight(module + key, LINEAR_IN),
        value=Weight(module + value, LINEAR_IN),
        output=Weight(module + output, writes),
    )


def projections(module: str, output: str = "o_proj.weight") -> Four:
    """The names that most models of Transformers use."""
    return linear(module, "q_proj.weight", "k_proj.weight", "v_proj.weight", output)


def fused(name: str, axes: str, output: str, writes: str = LINEAR_OUT) -> Four:
    """Query, key and value in one matrix: equal parts, or slots where there are fewer keys than queries."""
    query, key, value = (Weight(name, axes, part if "part" in axes else 0) for part in range(3))
    return Four(query=query, key=key, value=value, output=Weight(output, writes))
