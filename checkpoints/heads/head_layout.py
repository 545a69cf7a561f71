"""Where all the attention heads of a model are: one stack of layers, or several, and what was found and left out."""

from dataclasses import dataclass
from functools import cached_property

from checkpoints.files import Checkpoint
from checkpoints.files.checkpoint import Tensors, abridged
from checkpoints.heads.layout import Family, Heads, HeadSizes, Layer, TowerLayer
from checkpoints.heads.stack import Stack
from checkpoints.notebook import facts_table, titled


@dataclass(frozen=True)
class HeadLayout:
    """Where the heads of one model are, and how to read a layer of them."""

    stacks: tuple[Stack, ...]
    left_out: tuple[str, ...] = ()
    """What looks like attention and is not read, each with the reason."""
    notes: tuple[str, ...] = ()
    """What one has to know to read the numbers: what the caller insisted on, gates, layers without attention."""

    @property
    def family(self) -> Family:
        """The family of the first stack, of the only one in most models."""
        return self.stacks[0].family

    @property
    def name(self) -> str:
        """The families, with their towers where there are several."""
        if len(self.stacks) == 1:
            return self.family.name
        return ", ".join(f"{stack.family.name} ({stack.tower})" for stack in self.stacks)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers with attention: numbers, or towers and numbers where there are several stacks."""
        return tuple(self._places)

    @property
    def sizes(self) -> tuple[HeadSizes, ...]:
        """How many heads each of the layers has, and how large they are."""
        return tuple(sizes for stack in self.stacks for sizes in stack.sizes)

    def names(self, layer: Layer) -> list[str]:
        """The tensors that hold the heads of one layer and the gains of their norms, each once."""
        stack, number = self._place(layer)
        return stack.names(number)

    def read(self, checkpoint: Tensors, layer: Layer) -> Heads:
        """The raw weights of one layer."""
        stack, number = self._place(layer)
        return stack.read(checkpoint, number, getattr(checkpoint, "label", "the checkpoint"))

    def prefetch(self, checkpoint: Checkpoint) -> None:
        """Announce that all heads will be read."""
        if checkpoint.is_remote:
            checkpoint.prefetch([name for layer in self.layers for name in self.names(layer)])

    def __str__(self) -> str:
        """Layers and heads, in words."""
        if len(self.stacks) == 1:
            return str(self.stacks[0]) + self._omissions
        return "; ".join(f"{stack.tower}: {stack}" for stack in self.stacks) + self._omissions

    def __repr__(self) -> str:
        """The family, layers and heads."""
        return f"HeadLayout({self.name}, {self})"

    def _repr_html_(self) -> str:
        first = self.layers[0]
        facts = {
            "layers": lambda: abridged(list(self.layers)),
            f"tensors of layer {first}": lambda: ", ".join(self.names(first)),
            **({"left out": lambda: "; ".join(self.left_out)} if self.left_out else {}),
            **({"notes": lambda: "; ".join(self.notes)} if self.notes else {}),
        }
        return titled(repr(self), facts_table(facts))

    @property
    def _omissions(self) -> str:
        return f"; left out: {abridged(list(self.left_out), most=3)}" if self.left_out else ""

    @cached_property
    def _places(self) -> dict[Layer, tuple[Stack, int]]:
        is_single = len(self.stacks) == 1
        return {
            layer if is_single else TowerLayer(stack.tower, layer): (stack, layer)
            for stack in self.stacks
            for layer in stack.layers
        }

    def _place(self, layer: Layer) -> tuple[Stack, int]:
        if layer not in self._places:
            raise KeyError(f"no attention in layer {layer}; there is in {abridged(list(self.layers))}")
        return self._places[layer]
