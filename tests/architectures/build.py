"""A tiny model of any model type, its weights such that a mistake in reading them shows."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

from tests.architectures.shrink import tiny

PREFERRED = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
    "MODEL_FOR_PRETRAINING_MAPPING",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
    "MODEL_MAPPING",
)
"""What people save of a model, if it exists: with its head, which puts a prefix before the names."""


def model_classes(config: Any) -> Iterator[Any]:
    """The classes that a config may be for, what people train first."""
    for name in PREFERRED:
        mapping = getattr(modeling_auto, name)
        if type(config) in mapping:
            found = mapping[type(config)]
            yield from found if isinstance(found, tuple) else [found]
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    for _, kind in inspect.getmembers(module, inspect.isclass):
        is_model = issubclass(kind, PreTrainedModel) and not kind.__name__.endswith("PreTrainedModel")
        if is_model and kind.config_class is type(config):
            yield kind


def build(model_type: str, **settings: Any) -> Any:
    """A model with random weights: norm gains around one, no biases, patterns that are far from uniform."""
    torch.manual_seed(0)
    failure: Exception | None = None
    for is_grouped in (True, False):
        try:
            config = tiny(model_type, is_grouped=is_grouped, **settings)
        except Exception as error:  # a model that has no grouped heads, or no head_dim of its own
            failure = failure or error
            continue
        for kind in model_classes(config):
            try:
                make = getattr(kind, "_from_config", None)
                model = make(config, attn_implementation="eager") if make else kind(config)
            except Exception as error:  # the next class may be the one that is meant
                failure = failure or error
                continue
            model = model.float().eval()
            dress(model)
            return model
    raise failure or LookupError(f"Transformers has no model of its own for {model_type}")


def dress(model: nn.Module) -> None:
    """Weights that show, in place."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for owner in model.modules():
            for name, parameter in owner.named_parameters(recurse=False):
                if not parameter.is_floating_point():
                    continue
                noise = torch.randn(parameter.shape, generator=generator)
                if "bias" in name:
                    parameter.zero_()  # heads are their weights
                elif "norm" in type(owner).__name__.lower():
                    parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator))
                else:
                    parameter.copy_(0.3 * noise)
