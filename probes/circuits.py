"""The circuits of attention heads, as matrices from the residual stream to the residual stream, never multiplied out.

    ov           W_V W_O: what a head writes for what it reads                 one per query head
    qk           W_Q W_K^T: which key a query asks for                         one per query head
    ov_grouped   W_V [W_O of all heads that share it]: d_model x (group d_model)      one per value head
    qk_grouped   [W_Q of all heads that share the key] W_K^T: (group d_model) x d_model   one per key head
    ov_folded    ov with the gains of the norms before (and, in OLMo 2, after) attention multiplied in
    qk_folded    qk with the gains of the norm before attention, and of query and key norms, multiplied in
    qk_at_8      qk as it is between a query and the key 8 positions before it, in models with rotary positions
    qk_rotary    in latent attention the part of qk that carries positions, which qk itself leaves out

    mlp_in, mlp_gate, mlp_out, embed, unembed ... and any other matrix, as it is stored: names in `run.matrices`
    matrices     all of those; gains: the gains of all norms, each as one row

Raw weights unless the name says otherwise. Folding takes the gains alone: what a norm divides by depends on the data,
and the mean that LayerNorm subtracts stays in. What cannot be folded or rotated is refused, with the reason. A run with
weights of another kind says itself what its circuits are (`Run.circuits`, as data: see `checkpoints.circuits`).
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from checkpoints import Checkpoint, Heads, NoAttentionError, Run, Tensors
from checkpoints.circuits import DescribedCircuit, described_circuit
from checkpoints.files.checkpoint import abridged
from checkpoints.heads import HeadLayout, Layer
from checkpoints.matrices import MatrixLayout
from probes.matrices.factored import Factored

Matrix = Tensor | Factored
Builder = Callable[[Tensors], Matrix] | Mapping[str, Any]
"""A circuit of one's own, from the tensors of a checkpoint to a matrix [layer, head, rows, columns]: a function, or a
description as in `checkpoints.circuits`."""


def ov(heads: Heads) -> Factored:
    """W_V W_O of every query head."""
    return Factored(_expanded(heads.W_V, heads.group), heads.W_O)


def qk(heads: Heads) -> Factored:
    """W_Q W_K^T of every query head."""
    return Factored(heads.W_Q, _expanded(heads.W_K, heads.group).mT)


def ov_grouped(heads: Heads) -> Factored:
    """W_V of each value head beside the W_O of all query heads that share it."""
    return Factored(heads.W_V, _side_by_side(heads.W_O, heads.group))


def qk_grouped(heads: Heads) -> Factored:
    """The W_Q of all query heads that share a key head, stacked, against its W_K."""
    return Factored(_side_by_side(heads.W_Q.mT, heads.group).mT, heads.W_K.mT)


def ov_folded(heads: Heads) -> Factored:
    """ov from normalised input to normalised output: diag(gain) W_V W_O diag(output gain)."""
    _require_foldable(heads, "ov_folded")
    values = _scaled_rows(heads.W_V, heads.input_norm)
    return Factored(_expanded(values, heads.group), _scaled_rows(heads.W_O.mT, heads.output_norm).mT)


def qk_folded(heads: Heads) -> Factored:
    """qk on normalised input: diag(gain) W_Q diag(query gain) diag(key gain) W_K^T diag(gain)."""
    _require_foldable(heads, "qk_folded")
    query, key = heads.W_Q, heads.W_K
    if heads.query_norm is not None:
        query = query * heads.query_norm[:, None, :]
    if heads.key_norm is not None:
        key = key * heads.key_norm[:, None, :]
    query, key = _scaled_rows(query, heads.input_norm), _scaled_rows(key, heads.input_norm)
    return Factored(query, _expanded(key, heads.group).mT)


def qk_at(heads: Heads, offset: int) -> Factored:
    """W_Q R W_K^T between a query and the key `offset` positions before it."""
    if heads.rotary is None:
        raise ValueError(f"qk_at_{offset}: {heads.unrotatable or 'this model has no rotary positions'}")
    query, key = (heads.W_Q, heads.W_K) if heads.W_Q_rotary is None else (heads.W_Q_rotary, heads.W_K_rotary)
    assert key is not None
    rotation = heads.rotary.matrix(offset, query.shape[-1]).to(query.device)
    turned = query.double() @ rotation
    across = _expanded(key, heads.W_Q.shape[0] // key.shape[0]).mT.double()
    if heads.W_Q_rotary is None:
        return Factored(turned, across)
    whole = _expanded(heads.W_K, heads.group).mT.double()  # latent attention: the part without positions beside it
    return Factored(torch.cat([heads.W_Q.double(), turned], -1), torch.cat([whole, across], -2))


def qk_rotary(heads: Heads) -> Factored:
    """In latent attention, the part of the score that carries positions, at distance zero."""
    if heads.W_Q_rotary is None or heads.W_K_rotary is None:
        raise ValueError("qk_rotary: only latent attention keeps positions apart from qk; here qk_at_N turns all of it")
    return Factored(heads.W_Q_rotary, _expanded(heads.W_K_rotary, heads.W_Q.shape[0] // heads.W_K_rotary.shape[0]).mT)


CIRCUITS: dict[str, Callable[[Heads], Factored]] = {
    "ov": ov,
    "qk": qk,
    "ov_grouped": ov_grouped,
    "qk_grouped": qk_grouped,
    "ov_folded": ov_folded,
    "qk_folded": qk_folded,
    "qk_rotary": qk_rotary,
}


def default_circuits(run: Run) -> tuple[str, ...]:
    """ov and qk, where a run has them; else all that it describes; else every matrix, and that is said."""
    if run.circuits is not None:
        return tuple(name for name in ("ov", "qk") if name in run.circuits) or tuple(run.circuits)
    others = [name for name, layout in run.matrices.items() if layout.kind == "lora"]
    if not others:
        try:
            _ = run.heads
            return ("ov", "qk")
        except NoAttentionError:
            others = [name for name, layout in run.matrices.items() if layout.kind != "gain"]
            if not others:
                raise
    warnings.warn(f"run {run.name!r}: no attention here; measured are its matrices {abridged(others)}", stacklevel=3)
    return tuple(others)


@dataclass(frozen=True)
class HeadCircuit:
    """A circuit read from the attention heads of a run, one layer at a time."""

    layout: HeadLayout
    build: Callable[[Heads], Factored]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The numbers of the layers that have attention."""
        return self.layout.layers

    def read(self, checkpoint: Tensors, layer: Layer) -> Matrix:
        """[head, rows, columns] of one layer."""
        return self.build(self.layout.read(checkpoint, layer))

    def prefetch(self, checkpoint: Checkpoint) -> None:
        """Announce that all layers will be read."""
        self.layout.prefetch(checkpoint)


@dataclass(frozen=True)
class MatrixCircuit:
    """A matrix that need not be attention's, as it is stored, one layer at a time."""

    layout: MatrixLayout

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The numbers of the layers that have such a matrix."""
        return self.layout.layers

    def read(self, checkpoint: Tensors, layer: Layer) -> Matrix:
        """[head, rows, columns] of one layer; a low-rank adapter as its factors."""
        parts = self.layout.read(checkpoint, layer)
        return Factored(*parts) if len(parts) == 2 else parts[0]

    def prefetch(self, checkpoint: Checkpoint) -> None:
        """Announce that all layers will be read."""
        if checkpoint.is_remote:
            names = [name for layer in self.layers for name in self.layout.names(layer)]
            checkpoint.prefetch([name for name in names if name in checkpoint])


@dataclass(frozen=True)
class FromDescription:
    """A description as the function that it stands for."""

    description: DescribedCircuit

    def __call__(self, tensors: Tensors) -> Matrix:
        """The matrix [layer, head, rows, columns], a product as its factors."""
        parts = self.description.read(tensors)
        return Factored(parts[0], parts[1]) if len(parts) == 2 else parts[0]


@dataclass(frozen=True)
class BuiltCircuit:
    """A circuit that a function builds from the tensors, all layers at once."""

    build: Callable[[Tensors], Matrix]
    layers: tuple[Layer, ...]

    def read(self, checkpoint: Tensors, layer: Layer) -> Matrix:
        """[head, rows, columns] of one layer."""
        return self.build(checkpoint)[self.layers.index(layer)]

    def prefetch(self, checkpoint: Checkpoint) -> None:
        """Announce what a description names; of what any other function reads nothing is known."""
        if checkpoint.is_remote and isinstance(self.build, FromDescription):
            checkpoint.prefetch([name for name in self.build.description.names if name in checkpoint])


Circuit = HeadCircuit | MatrixCircuit | BuiltCircuit


def read_layer(circuits: Mapping[str, Circuit], checkpoint: Tensors, layer: Layer) -> dict[str, Matrix]:
    """Several circuits of one layer; heads are read once for all of them."""
    heads: Heads | None = None
    found: dict[str, Matrix] = {}
    for name, circuit in circuits.items():
        if isinstance(circuit, HeadCircuit):
            heads = heads or circuit.layout.read(checkpoint, layer)
            found[name] = circuit.build(heads)
        else:
            found[name] = circuit.read(checkpoint, layer)
    return found


def head_counts(circuits: Mapping[str, Circuit], checkpoint: Checkpoint) -> dict[tuple[str, Layer], int]:
    """By circuit and layer, how many heads there are; weights are read only for what somebody's function builds."""
    counts = {}
    for name, circuit in circuits.items():
        shapes: Tensors = checkpoint
        if not isinstance(circuit, BuiltCircuit):
            shapes = _shapes(checkpoint, {tensor for layer in circuit.layers for tensor in circuit.layout.names(layer)})
        elif isinstance(circuit.build, FromDescription):
            shapes = _shapes(checkpoint, circuit.build.description.names)
        for layer in circuit.layers:
            counts[name, layer] = circuit.read(shapes, layer).shape[0]
    return counts


def _shapes(checkpoint: Checkpoint, names: Iterable[str]) -> dict[str, Tensor]:
    """Tensors of a checkpoint without their content."""
    stored = {name: checkpoint.stored[name] for name in names if name in checkpoint}
    return {name: torch.empty(s.shape, dtype=s.dtype, device="meta") for name, s in stored.items()}


def circuits_of(run: Run, wanted: Iterable[str] | Mapping[str, Builder]) -> dict[str, Circuit]:
    """How to read each circuit of a run: of those it has, by name, or of your own, {name: function or description}.

    Raises ValueError naming what is known, or what is wrong with a description.
    """
    if isinstance(wanted, Mapping):
        return {name: _own(run, name, circuit) for name, circuit in wanted.items()}
    wanted = tuple(wanted)
    if run.circuits is not None:
        for name in wanted:
            if name not in run.circuits:
                raise ValueError(f"{run.family} has no circuit {name!r}; it has {', '.join(run.circuits)}")
        where = f"run {run.name!r} ({run.source})"
        return {name: _described(run, run.circuits[name], f"{where}, circuit {name!r}") for name in wanted}
    return {name: circuit for asked in wanted for name, circuit in _found(run, asked).items()}


def _found(run: Run, asked: str) -> dict[str, Circuit]:
    """The circuit of a name, of attention heads first; all matrices for "matrices", all gains for "gains"."""
    if is_of_heads(asked):
        return {asked: HeadCircuit(run.heads, circuit_named(asked))}
    there = run.matrices
    if asked in ("matrices", "gains"):
        chosen = [name for name, layout in there.items() if (layout.kind == "gain") == (asked == "gains")]
    else:
        chosen = [asked] if asked in there else []
    if not chosen:
        raise ValueError(
            f"no circuit is called {asked!r}; there are {', '.join(CIRCUITS)}, qk_at_N for an offset N, and the "
            f"matrices of run {run.name!r}: {abridged(list(there), 20)}"
        )
    return {name: MatrixCircuit(there[name]) for name in chosen}


def descriptions(circuits: Any) -> Mapping[str, Any] | None:
    """The circuits if all of them are descriptions, such as a run can keep; None for names and functions."""
    if not isinstance(circuits, Mapping) or not circuits:
        return None
    return circuits if all(isinstance(circuit, Mapping) for circuit in circuits.values()) else None


def is_of_heads(name: str) -> bool:
    """Whether a circuit of attention heads is called so."""
    return name in CIRCUITS or re.fullmatch(r"qk_at_\d+", name) is not None


def circuit_named(name: str) -> Callable[[Heads], Factored]:
    """The function of a circuit of attention heads."""
    at = re.fullmatch(r"qk_at_(\d+)", name)
    if at:
        return lambda heads: qk_at(heads, int(at[1]))
    if name not in CIRCUITS:
        raise ValueError(f"no circuit is called {name!r}; there are {', '.join(CIRCUITS)} and qk_at_N for an offset N")
    return CIRCUITS[name]


def _own(run: Run, name: str, circuit: Builder) -> BuiltCircuit:
    if not callable(circuit):
        return _described(run, circuit, f"circuits, {name!r}")
    shape = circuit(run.representative_checkpoint()).shape
    if len(shape) != 4:
        raise ValueError(f"circuit {name!r} is {tuple(shape)}; [layer, head, rows, columns] is expected")
    return BuiltCircuit(circuit, tuple(range(shape[0])))


def _described(run: Run, description: Any, where: str) -> BuiltCircuit:
    """A description checked against the shapes in the run; no weights are read for that."""
    checkpoint = run.representative_checkpoint()
    build = FromDescription(described_circuit(description, where))
    return BuiltCircuit(build, tuple(range(build(_shapes(checkpoint, checkpoint)).shape[0])))


def _require_foldable(heads: Heads, circuit: str) -> None:
    if heads.unfoldable:
        raise ValueError(f"{circuit}: {heads.unfoldable}")


def _expanded(matrices: Tensor, group: int) -> Tensor:
    return matrices.repeat_interleave(group, dim=0) if group > 1 else matrices


def _side_by_side(matrices: Tensor, group: int) -> Tensor:
    """[head, a, b] to [head / group, a, group b]."""
    heads, rows, columns = matrices.shape
    return matrices.reshape(heads // group, group, rows, columns).transpose(1, 2).reshape(-1, rows, group * columns)


def _scaled_rows(matrices: Tensor, gain: Tensor | None) -> Tensor:
    return matrices if gain is None else torch.mul(matrices, gain[:, None])
