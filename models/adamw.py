"""AdamW on one vector of parameters, with a warm-up, whose whole state can be saved and put back."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float32
from torch import Tensor

_STATE = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class AdamWConfig:
    """The learning rate rises linearly over the first `warm_up` updates and then stays."""

    learning_rate: float
    weight_decay: float
    betas: tuple[float, float]
    warm_up: int
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate is {self.learning_rate}: a positive number is needed")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay is {self.weight_decay}: zero or a positive number is needed")
        if self.warm_up < 0:
            raise ValueError(f"warm_up is {self.warm_up}: a number of updates is needed")


class AdamW:
    """The optimizer and the parameters it moves."""

    def __init__(self, parameters: Float32[Tensor, " parameters"], config: AdamWConfig) -> None:
        self.config = config
        self.parameters = parameters.clone().requires_grad_()
        self._optimizer = torch.optim.AdamW(
            [self.parameters],
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.epsilon,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._done = 0

    def step(self, loss: Tensor) -> None:
        """One update down the gradient of the loss."""
        self.parameters.grad = None
        loss.backward()
        warm = min(1.0, (self._done + 1) / self.config.warm_up) if self.config.warm_up else 1.0
        self._optimizer.param_groups[0]["lr"] = self.config.learning_rate * warm
        self._optimizer.step()
        self._done += 1

    def state(self) -> dict[str, Tensor]:
        """Parameters, moments and the number of updates so far."""
        moments = self._optimizer.state.get(self.parameters, {})
        return {"parameters": self.parameters.detach(), **{name: moments[name] for name in _STATE if name in moments}}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a state."""
        with torch.no_grad():
            self.parameters.copy_(state["parameters"])
        self._optimizer.state.clear()
        if "step" in state:
            self._optimizer.state[self.parameters] = {name: state[name].clone() for name in _STATE}
        self._done = int(state["step"]) if "step" in state else 0
