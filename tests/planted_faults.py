"""Faults planted in healthy series of checkpoints: the broken series, and by step what must be said of it."""

from collections.abc import Callable

import torch

from tests.training_series import Series, copied, healthy, in_first_shard

EVEN_RUN, LOG_RUN, PYTHIA_RUN, BFLOAT_RUN, SGD_RUN, NOISY_RUN = 0, 1, 2, 8, 12, 10

Planted = tuple[Series, dict[int, str]]


def at(series: Series, index: int) -> int:
    return list(series)[index]


def identical_neighbours(number: int, first: int, length: int) -> Planted:
    series = copied(healthy(number))
    group = list(series)[first : first + length]
    for step in group[1:]:
        series[step] = series[group[0]]
    return series, dict.fromkeys(group, "repeated")


def final_weights(number: int, *places: int, kind: str = "final_weights") -> Planted:
    series = copied(healthy(number))
    for place in places:
        series[at(series, place)] = series[at(series, -1)]
    return series, {at(series, place): kind for place in places}


def final_tensors(number: int, place: int, belongs: Callable[[str], bool]) -> Planted:
    series = copied(healthy(number))
    step, last = at(series, place), series[at(series, -1)]
    series[step] |= {name: tensor for name, tensor in last.items() if belongs(name)}
    return series, {step: "final_weights"}


def all_final(number: int) -> Planted:
    series = copied(healthy(number))
    last = at(series, -1)
    return {step: series[last] for step in series}, dict.fromkeys(list(series)[:-1], "final_weights")


def copy_of_another(number: int, place: int, source: int) -> Planted:
    series = copied(healthy(number))
    series[at(series, place)] = series[at(series, source)]
    return series, {at(series, place): "copy"}


def swapped(number: int, place: int) -> Planted:
    series = copied(healthy(number))
    a, b = list(series)[place:][:2]
    series[a], series[b] = series[b], series[a]
    return series, {a: "swapped", b: "swapped"}


def other_dtype(number: int, place: int, dtype: torch.dtype) -> Planted:
    series = copied(healthy(number))
    step = at(series, place)
    series[step] = {name: tensor.to(dtype) for name, tensor in series[step].items()}
    return series, {step: "dtype"}


def other_shape(number: int, place: int, change: Callable[[dict], None]) -> Planted:
    series = copied(healthy(number))
    change(series[at(series, place)])
    return series, {at(series, place): "shape"}


def not_finite(number: int, place: int, value: float) -> Planted:
    series = copied(healthy(number))
    series[at(series, place)]["layers.1.weight"][3, 5] = value
    return series, {at(series, place): "not_finite"}


def foreign(number: int, place: int, change: Callable[[dict], dict], belongs=lambda name: True) -> Planted:
    series = copied(healthy(number))
    step = at(series, place)
    series[step] |= {name: tensor for name, tensor in change(series[step]).items() if belongs(name)}
    return series, {step: "excursion"}


def another_run(tensors: dict) -> dict:
    return healthy(20)[300]  # the settings of run 0, from another seed


def negated(tensors: dict) -> dict:
    return {name: -tensor for name, tensor in tensors.items()}


def shuffled(tensors: dict) -> dict:
    return {name: tensor.flatten().roll(7).reshape(tensor.shape) for name, tensor in tensors.items()}


def another_run_from_there_on(number: int, place: int) -> Planted:
    series = copied(healthy(number))
    other = healthy(number + 20)
    for step in list(series)[place:]:
        series[step] = other[step]
    return series, {at(series, place): "jump"}


def stale_shard(number: int, place: int) -> Planted:
    series = copied(healthy(number))
    before, step = series[at(series, place - 1)], at(series, place)
    series[step] |= {name: tensor for name, tensor in before.items() if in_first_shard(name)}
    return series, {step: "partly_repeated"}


def drop(name: str) -> Callable[[dict], None]:
    return lambda tensors: tensors.pop(name)


def cut(name: str) -> Callable[[dict], None]:
    return lambda tensors: tensors.update({name: tensors[name][:-1].clone()})


def transposed(tensors: dict) -> None:
    tensors["head.weight"] = tensors["head.weight"].T.contiguous()


PLANTED: dict[str, Callable[[], Planted]] = {
    "two identical neighbours": lambda: identical_neighbours(EVEN_RUN, 5, 2),
    "three identical consecutive steps": lambda: identical_neighbours(LOG_RUN, 12, 3),
    "identical neighbours in bfloat16": lambda: identical_neighbours(BFLOAT_RUN, 9, 2),
    "the first two steps identical, ten apart": lambda: identical_neighbours(EVEN_RUN, 0, 2),
    "final weights once": lambda: final_weights(EVEN_RUN, 4),
    "final weights at the start": lambda: final_weights(LOG_RUN, 0),
    "final weights at three steps": lambda: final_weights(PYTHIA_RUN, 2, 3, 6),
    "final weights just before the end": lambda: final_weights(EVEN_RUN, -2, kind="unchanged"),
    "every step serves the final weights": lambda: all_final(EVEN_RUN),
    "every step serves the final weights, other run": lambda: all_final(BFLOAT_RUN),
    "first shard is the final one": lambda: final_tensors(EVEN_RUN, 6, in_first_shard),
    "second shard is the final one": lambda: final_tensors(LOG_RUN, 9, lambda name: not in_first_shard(name)),
    "one tensor is the final one": lambda: final_tensors(SGD_RUN, 3, lambda name: name == "layers.2.weight"),
    "a later step again": lambda: copy_of_another(EVEN_RUN, 4, 9),
    "an earlier step again": lambda: copy_of_another(LOG_RUN, 15, 11),
    "neighbours exchanged": lambda: swapped(EVEN_RUN, 5),
    "neighbours exchanged, log-spaced": lambda: swapped(LOG_RUN, 14),
    "neighbours exchanged, SGD": lambda: swapped(SGD_RUN, 4),
    "the last two exchanged": lambda: swapped(EVEN_RUN, -2),
    "the last two exchanged, log-spaced": lambda: swapped(LOG_RUN, -2),
    "the first two exchanged": lambda: swapped(EVEN_RUN, 0),
    "weights of another run, second to last": lambda: foreign(EVEN_RUN, -2, another_run),
    "one step in bfloat16": lambda: other_dtype(EVEN_RUN, 7, torch.bfloat16),
    "one step in float64": lambda: other_dtype(LOG_RUN, 3, torch.float64),
    "the last step in float16": lambda: other_dtype(PYTHIA_RUN, -1, torch.float16),
    "a tensor cut": lambda: other_shape(EVEN_RUN, 3, cut("layers.0.weight")),
    "a tensor missing": lambda: other_shape(LOG_RUN, 3, drop("norm.bias")),
    "a tensor transposed": lambda: other_shape(PYTHIA_RUN, 5, transposed),
    "one NaN": lambda: not_finite(EVEN_RUN, 2, torch.nan),
    "one infinity": lambda: not_finite(LOG_RUN, -1, torch.inf),
    "NaN in bfloat16": lambda: not_finite(BFLOAT_RUN, 5, torch.nan),
    "weights of another run": lambda: foreign(EVEN_RUN, 8, another_run),
    "weights of another run, log-spaced": lambda: foreign(LOG_RUN, 14, another_run),
    "negated": lambda: foreign(SGD_RUN, 6, negated),
    "shuffled": lambda: foreign(NOISY_RUN, 10, shuffled),
    "second shard of another run": lambda: foreign(EVEN_RUN, 8, another_run, lambda name: not in_first_shard(name)),
    "another run from there on": lambda: another_run_from_there_on(EVEN_RUN, 8),
    "another run from there on, SGD": lambda: another_run_from_there_on(SGD_RUN, 10),
    "first shard of the step before": lambda: stale_shard(EVEN_RUN, 6),
    "first shard of the step before, log-spaced": lambda: stale_shard(LOG_RUN, 17),
}
