"""Faults of the kind that a conversion script, a merge or a broken disk leaves in checkpoints of a transformer.

By name: the broken series, and by step the kinds of which one must be said of it.
"""

from collections.abc import Callable

import torch

from tests.attention_series import HABITS, HEADS, WIDTH, Small, trained
from tests.training_series import Series, copied

EVEN, LOG, WARM_UP, SLOW, SGD = 0, 1, 5, 12, 14
Expected = dict[int, set[str]]
Planted = tuple[Series, Expected]
ATTENTION = [f"h.{layer}.attn.{name}.weight" for layer in (0, 1) for name in "qkvo"]


def changed(number: int, place: int, change: Callable[[dict], dict], *kinds: str, on: bool = False) -> Planted:
    """A change at one step, or from it on."""
    series = copied(trained(number))
    steps = list(series)[place:] if on else [list(series)[place]]
    for step in steps:
        series[step] |= change(series[step])
    return series, {steps[0]: set(kinds)}


def permuted_heads(tensors: dict) -> dict:
    order = (torch.arange(WIDTH).reshape(HEADS, -1).roll(1, 0)).flatten()
    rows = {name: tensors[name][order] for name in ATTENTION if not name.endswith("o.weight")}
    return rows | {name: tensors[name][:, order] for name in ATTENTION if name.endswith("o.weight")}


def merged_adapter(tensors: dict) -> dict:
    generator = torch.Generator().manual_seed(0)
    found = {}
    for name in ATTENTION:
        delta = torch.randn(WIDTH, 2, generator=generator) @ torch.randn(2, WIDTH, generator=generator)
        found[name] = tensors[name] + 0.5 * delta * tensors[name].norm() / delta.norm()
    return found


def zeroed(tensors: dict) -> dict:
    return {"h.1.mlp.c_proj.weight": torch.zeros_like(tensors["h.1.mlp.c_proj.weight"])}


def transposed(tensors: dict) -> dict:
    return {"h.0.attn.k.weight": tensors["h.0.attn.k.weight"].T.contiguous()}


def outlier(tensors: dict) -> dict:
    found = tensors["h.0.mlp.c_fc.weight"].clone()
    found[3, 4] = 6.5e5
    return {"h.0.mlp.c_fc.weight": found}


def flipped_bit(tensors: dict) -> dict:
    found = tensors["wte.weight"].clone()
    bits = found.view(torch.int32)
    bits[7, 7] = bits[7, 7] ^ (1 << 30)
    return {"wte.weight": found}


def larger(tensors: dict) -> dict:
    return {name: 1.1 * tensor for name, tensor in tensors.items()}


def before_with_noise(number: int, place: int) -> Planted:
    series = copied(trained(number))
    steps = list(series)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in series[steps[place - 1]].items():
        if name == "mask":
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        series[steps[place]][name] = tensor + 1e-3 * tensor.abs().mean() * noise
    return series, {steps[place]: {"stalled"}}


def rounded_final(number: int) -> Planted:
    series = copied(trained(number))
    before, last = list(series)[-2:]
    series[before] = {name: tensor.bfloat16().float() for name, tensor in series[last].items()}
    return series, {before: {"final_weights"}}


def other_seed_at_the_start(number: int) -> Planted:
    series = copied(trained(number))
    series[0] = copied(trained(number, seed=1))[0]
    return series, {0: {"unrelated"}}


def renamed(number: int, place: int) -> Planted:
    series = copied(trained(number))
    steps = list(series)
    return {10 * s if k >= place else s: series[s] for k, s in enumerate(steps)}, {
        10 * steps[place]: {"renamed", "gap"}
    }


def moments(number: int, key: str) -> Planted:
    """What AdamW keeps of the gradients, saved under the names of the weights."""
    series: Series = {}
    torch.manual_seed(number)
    model = Small(tied=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, HABITS[number].steps[-1] + 1):
        tokens = torch.randint(0, 40, (8, 12))
        logits = model(tokens[:, :-1]).flatten(0, 1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
        optimizer.step()
        if step in HABITS[number].steps:
            series[step] = {n: optimizer.state[p][key].clone() for n, p in model.named_parameters()}
    return series, {step: {"not_weights"} for step in series}


PLANTED: dict[str, Callable[[], Planted]] = {
    "heads permuted at one step": lambda: changed(EVEN, 6, permuted_heads, "excursion"),
    "heads permuted at one step, log-spaced": lambda: changed(LOG, 12, permuted_heads, "excursion"),
    "heads permuted from one step on": lambda: changed(EVEN, 6, permuted_heads, "jump", on=True),
    "heads permuted from one step on, SGD": lambda: changed(SGD, 7, permuted_heads, "jump", on=True),
    "an adapter merged into attention": lambda: changed(EVEN, 7, merged_adapter, "excursion"),
    "an adapter merged into attention and left there": lambda: changed(SLOW, 7, merged_adapter, "jump", on=True),
    "one matrix zeroed": lambda: changed(EVEN, 5, zeroed, "zeroed"),
    "one matrix zeroed at the end": lambda: changed(LOG, -1, zeroed, "zeroed"),
    "one matrix transposed": lambda: changed(EVEN, 5, transposed, "excursion"),
    "one matrix transposed, log-spaced": lambda: changed(LOG, 14, transposed, "excursion"),
    "an outlier of 6.5e5": lambda: changed(EVEN, 4, outlier, "outlier"),
    "an outlier of 6.5e5 at the end": lambda: changed(SGD, -1, outlier, "outlier"),
    "a flipped exponent bit": lambda: changed(LOG, 9, flipped_bit, "outlier"),
    "weights times 1.1": lambda: changed(EVEN, 6, larger, "scaled"),
    "weights times 1.1, log-spaced": lambda: changed(LOG, 13, larger, "scaled"),
    "weights times 1.1, warm-up": lambda: changed(WARM_UP, 6, larger, "scaled"),
    "the step before plus noise": lambda: before_with_noise(EVEN, 6),
    "the step before plus noise, SGD": lambda: before_with_noise(SGD, 6),
    "final weights in bfloat16 just before the end": lambda: rounded_final(EVEN),
    "step 0 of another seed": lambda: other_seed_at_the_start(LOG),
    "step 0 of another seed, evenly spaced": lambda: other_seed_at_the_start(EVEN),
    "steps renamed x 10 from one on": lambda: renamed(EVEN, 6),
    "first moments instead of weights": lambda: moments(EVEN, "exp_avg"),
    "second moments instead of weights": lambda: moments(EVEN, "exp_avg_sq"),
}
