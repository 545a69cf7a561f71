"""Adam, with or without decoupled weight decay, on several seeds at once.

All of it is elementwise, so a batch of seeds [seeds, ...] is as many optimizers side by side. One seed's share of the
state can be taken out and put back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class AdamConfig:
    """Kingma and Ba's names; weight_decay is that of AdamW."""

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0


class AdamOfSeeds:
    """The parameters [seeds, ...] by name, and what Adam remembers of each."""

    def __init__(self, parameters: Mapping[str, Tensor], config: AdamConfig) -> None:
        self.config, self.step = config, 0
        self.parameters = {name: value.clone() for name, value in parameters.items()}
        self._first = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self._second = {name: torch.zeros_like(value) for name, value in parameters.items()}

    def update(self, gradients: Mapping[str, Tensor]) -> None:
        """One step."""
        c = self.config
        self.step += 1
        first_scale, second_scale = (1 - beta**self.step for beta in c.betas)
        for name, value in self.parameters.items():
            gradient, first, second = gradients[name], self._first[name], self._second[name]
            first.lerp_(gradient, 1 - c.betas[0])
            second.mul_(c.betas[1]).addcmul_(gradient, gradient, value=1 - c.betas[1])
            value.mul_(1 - c.learning_rate * c.weight_decay)
            spread = (second / second_scale).sqrt_().add_(c.epsilon)
            value.addcdiv_(first, spread, value=-c.learning_rate / first_scale)

    def state(self, index: int) -> dict[str, Tensor]:
        """One seed's parameters and memory."""
        parts = {"": self.parameters, "first ": self._first, "second ": self._second}
        state = {prefix + name: value[index].clone() for prefix, part in parts.items() for name, value in part.items()}
        return state | {"adam step": torch.tensor(self.step)}

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the states of all seeds."""
        self.step = int(states[0]["adam step"])
        for prefix, part in (("", self.parameters), ("first ", self._first), ("second ", self._second)):
            for name in part:
                part[name] = torch.stack([state[prefix + name] for state in states])
