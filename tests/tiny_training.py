"""A tiny GPT-2 in training: the same run every time it is made."""

from collections.abc import Iterator

import torch

from tests import small_gpt2


class Training:
    """Iterating makes one update after the other: (updates made, loss before the last)."""

    def __init__(self, steps: int, dropout: float = 0.0, learning_rate: float = 3e-3) -> None:
        self.model = small_gpt2.model()
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
        self.steps, self.losses = steps, torch.zeros(0)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate)
        self.tokens = torch.randint(20, (steps, 4, 8), generator=torch.Generator().manual_seed(7))

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        torch.manual_seed(11)  # of dropout
        self.model.train()
        for step in range(self.steps):
            loss = self.model(self.tokens[step], labels=self.tokens[step]).loss
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses = torch.cat((self.losses, loss.detach()[None]))
            yield step + 1, loss

    def evaluate(self) -> dict[str, float]:
        """The loss on other tokens, with dropout off; draws a random number on the way."""
        tokens = torch.randint(20, (4, 8))
        return {"test_loss": float(self.model(tokens, labels=tokens).loss)}
