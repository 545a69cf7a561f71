"""All pairs of a small cyclic group, some for training and the rest for testing.

    addition, subtraction    c = a + b, a - b  (mod p)        the residues 0 .. p - 1
    multiplication           c = a b           (mod p)        the residues 1 .. p - 1; a group only if p is prime

Multiplication is addition of discrete logarithms: with a generator g, a = g^i and b = g^j give c = g^(i+j). So all
three are one task on the exponents, i +- j (mod order), and one Fourier analysis serves them all.

A sequence is `a b =`, the answer is read at `=`, whose token is p. random_labels draws every answer at random instead:
there is nothing to generalise, and what such a run still shows is not a sign of generalisation.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int64
from torch import Generator, Tensor

OPERATIONS = ("addition", "subtraction", "multiplication")


@dataclass(frozen=True)
class Pairs:
    """Pairs of tokens and their answers."""

    first: Int64[Tensor, " count"]
    second: Int64[Tensor, " count"]
    answer: Int64[Tensor, " count"]


@dataclass(frozen=True)
class ModularArithmetic:
    """One operation modulo `modulus`; train_fraction of all pairs is for training."""

    modulus: int = 59
    operation: str = "addition"
    train_fraction: float = 0.4
    random_labels: bool = False

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ValueError(f"operation is {self.operation!r}: one of {', '.join(OPERATIONS)} is expected")
        if self.modulus < 3:
            raise ValueError(f"modulus is {self.modulus}: at least 3 is needed")
        if self.operation == "multiplication" and not is_prime(self.modulus):
            raise ValueError(
                f"modulus is {self.modulus}, which is not prime: modulo it some products of residues are 0, and "
                f"multiplication is no group. The next prime is {next_prime(self.modulus)}"
            )
        if not 0 < self.train_fraction < 1:
            raise ValueError(f"train_fraction is {self.train_fraction}: a share between 0 and 1 is expected")
        total = self.order**2
        if not 1 <= self.training_pairs < total:
            left = "no training pair" if self.training_pairs < 1 else "no test pair"
            raise ValueError(
                f"train_fraction is {self.train_fraction:g} of {total} pairs: it leaves {left}. "
                f"Between {1 / total:.3g} and {1 - 1 / total:.5g} is expected"
            )

    @property
    def order(self) -> int:
        """How many elements the group has."""
        return self.modulus - 1 if self.operation == "multiplication" else self.modulus

    @property
    def training_pairs(self) -> int:
        """How many pairs are trained on."""
        return round(self.train_fraction * self.order**2)

    @cached_property
    def elements(self) -> Int64[Tensor, " order"]:
        """The token of each exponent."""
        if self.operation != "multiplication":
            return torch.arange(self.modulus)
        generator = primitive_root(self.modulus)
        return torch.tensor([pow(generator, i, self.modulus) for i in range(self.order)])

    @property
    def exponents(self) -> Int64[Tensor, "order order"]:
        """The exponent of the answer, by the exponents of both terms."""
        i = torch.arange(self.order)
        other = -i if self.operation == "subtraction" else i
        return (i[:, None] + other) % self.order

    def split(self, generator: Generator) -> tuple[Pairs, Pairs]:
        """Training and test pairs."""
        order = self.order
        shuffled = torch.randperm(order**2, generator=generator)
        answers = self.elements[self.exponents].flatten()
        if self.random_labels:
            answers = self.elements[torch.randint(order, (order**2,), generator=generator)]

        def chosen(rows: Tensor) -> Pairs:
            rows = rows.sort().values
            return Pairs(self.elements[rows // order], self.elements[rows % order], answers[rows])

        return chosen(shuffled[: self.training_pairs]), chosen(shuffled[self.training_pairs :])


def is_prime(number: int) -> bool:
    """Whether a number is prime, by trial division."""
    return number > 1 and all(number % d for d in range(2, math.isqrt(number) + 1))


def next_prime(number: int) -> int:
    """The smallest prime above `number`."""
    candidate = number + 1
    while not is_prime(candidate):
        candidate += 1
    return candidate


def primitive_root(prime: int) -> int:
    """The smallest number whose powers are all residues but 0."""
    factors = [q for q in range(2, prime) if (prime - 1) % q == 0 and is_prime(q)]
    return next(g for g in range(1, prime) if all(pow(g, (prime - 1) // q, prime) != 1 for q in factors))
