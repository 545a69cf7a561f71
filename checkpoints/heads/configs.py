"""What a config says of one stack of attention: how many heads, and which part of a nested config is meant.

A model of several towers keeps a config for each (`text_config`, `vision_config` ...). Which of them a stack goes by is
told from the words in front of its names; where no word decides, the text's.
"""

import re
from collections.abc import Mapping
from typing import Any

from checkpoints.heads.layout import Family
from checkpoints.heads.weights import HeadCounts

HEAD_COUNTS = ("num_attention_heads", "n_heads", "n_head", "num_heads", "attention_heads", "num_query_heads")
KV_HEAD_COUNTS = ("num_key_value_heads", "n_key_value_heads", "n_kv_heads", "num_kv_heads")

WORDS = {
    "vision": ("vision", "visual", "image", "vit", "img"),
    "audio": ("audio", "speech", "sound"),
    "text": ("text", "language", "llm", "lm"),
}
"""By tower, the words in names and in the keys of configs that mean it."""

_SIDES = ("encoder", "decoder")
_COUNTS = (*HEAD_COUNTS, *(f"{side}_{num}attention_heads" for side in _SIDES for num in ("", "num_")))


def part_of(config: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
    """The config of the stack whose names begin with prefix."""
    nested = {key.removesuffix("_config"): value for key, value in config.items() if _describes_a_model(value)}
    if not nested:
        return config
    words = re.split(r"[._]", prefix.lower())
    for word in words:
        meant = {word}.union(*(group for group in WORDS.values() if word in group))
        for key, value in nested.items():
            if meant & {*key.lower().split("_")}:
                return part_of(value, prefix)
    if any(_number(config, key, 0) for key in _COUNTS):
        return config
    for key in ("text", "llm", "language", "decoder", "thinker"):
        if key in nested:
            return part_of(nested[key], prefix)
    says_itself = any(key.endswith("attention_heads") and _number(config, key, 0) for key in config)
    if len(nested) != 1 or says_itself or "backbone" in nested:  # a backbone is a part: its names say so
        return config
    return part_of(next(iter(nested.values())), prefix)


def _describes_a_model(value: Any) -> bool:
    """Whether part of a config is that of a model inside the model."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return False
    inner = any(_describes_a_model(one) for one in value.values())
    return inner or bool(value.get("model_type")) or any(_number(value, key, 0) for key in _COUNTS)


def knows_heads(config: Mapping[str, Any]) -> bool:
    """Whether a config, or one inside it, says how many heads there are."""
    return _describes_a_model({key: value for key, value in config.items() if key != "model_type"})


def counts_of(family: Family, config: Mapping[str, Any], prefix: str, layer: int) -> HeadCounts:
    """How many heads the config says that a layer has."""
    sides = [side for side in _SIDES if side in prefix] or ["decoder", "encoder"]
    both = [f"{side}_{middle}" for side in sides for middle in ("", "num_")]
    heads = (*family.head_counts, *(f"{start}attention_heads" for start in both), *HEAD_COUNTS)
    own = (f"{start}key_value_heads" for start in both)
    found = next((count for key in heads if (count := _number(config, key, layer))), None)
    kv = next(
        (n for key in (*family.kv_head_counts, *own, *KV_HEAD_COUNTS) if (n := _number(config, key, layer))), None
    )
    return HeadCounts(found, None if family.kv_heads_from_shape else kv)


def _number(config: Mapping, key: str, layer: int) -> int | None:
    """What stands at a key, dots for keys within keys; of a list, the layer's."""
    value: Any = config
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, list | tuple) and layer < len(value):
        value = value[layer]
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
