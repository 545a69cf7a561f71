"""What the network computes, seen by frequency: the progress measures of Nanda et al. (2023).

A network that has understood the group of order n computes cos and sin of w_k (i +- j), w_k = 2 pi k / n, for a few key
frequencies k, from embeddings that are waves of those frequencies. (i, j are exponents: residues for addition, discrete
logarithms for multiplication.) The table of all logits [i, j, answer] says how far it has come:

    restricted loss    test loss of the logits cut down to their mean and their waves in i +- j of the key frequencies:
                       falls as the circuit forms, before the test loss itself
    excluded loss      training loss of the logits without those waves: rises as the network comes to rely on them

Key frequencies are those of the network at the end, so the two are measured looking back. `embedding_power` needs no
end. Where we differ from the paper: key frequencies are the fewest that hold 95 % of the power of the waves in i +- j
(there: chosen by hand), and the answers keep all their directions (there: cos and sin of w_k c only).
"""

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

KEY_SHARE = 0.95

Logits = Float64[Tensor, "order order answer"]
Table = Int64[Tensor, "order order"]


def waves(logits: Logits, exponents: Table) -> Float64[Tensor, "order answer"]:
    """Mean of the logits over all pairs with the same i +- j: all that depends on nothing else."""
    order = len(logits)
    sums = torch.zeros(order, logits.shape[-1], dtype=torch.float64)
    return sums.index_add_(0, exponents.flatten(), logits.flatten(0, 1)) / order


def wave_power(logits: Logits, exponents: Table) -> Float64[Tensor, " frequencies"]:
    """Share of each frequency 1 .. order // 2 in the power of the waves, summed over answers; means do not count."""
    return _power(waves(logits, exponents))


def embedding_power(embedding: Float64[Tensor, "order d"]) -> Float64[Tensor, " frequencies"]:
    """Share of each frequency in the power of the embedding, its rows in order of exponents."""
    return _power(embedding)


def key_frequencies(logits: Logits, exponents: Table, share: float = KEY_SHARE) -> list[int]:
    """The fewest frequencies that hold this share of the power of the waves, strongest first."""
    power = wave_power(logits, exponents)
    strongest = power.argsort(descending=True)
    count = int((power[strongest].cumsum(0) < share).sum()) + 1
    return [int(k) + 1 for k in strongest[:count]]


def restricted(logits: Logits, exponents: Table, frequencies: list[int]) -> Logits:
    """Mean over all pairs, plus the waves in i +- j of these frequencies."""
    return logits.mean((0, 1)) + _filtered(waves(logits, exponents), frequencies)[exponents]


def excluded(logits: Logits, exponents: Table, frequencies: list[int]) -> Logits:
    """Everything but the waves in i +- j of these frequencies."""
    return logits - _filtered(waves(logits, exponents), frequencies)[exponents]


def _power(values: Float64[Tensor, "order columns"]) -> Float64[Tensor, " frequencies"]:
    spectrum = torch.fft.rfft(values, dim=0).abs().square().sum(1)[1:]
    if len(values) % 2 == 0:
        spectrum[-1] /= 2  # the others stand for k and -k
    return spectrum / spectrum.sum()


def _filtered(values: Float64[Tensor, "order answer"], frequencies: list[int]) -> Float64[Tensor, "order answer"]:
    spectrum = torch.fft.rfft(values, dim=0)
    kept = torch.zeros_like(spectrum)
    kept[frequencies] = spectrum[frequencies]
    return torch.fft.irfft(kept, n=len(values), dim=0)
