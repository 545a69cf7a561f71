"""A whitened record beside one baseline, with and without a shape: what is left, how high, and what is in use."""

from typing import Any

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import short_constants
from probes.series.transitions.baselines import Columns
from probes.series.transitions.laws import Law
from probes.series.transitions.models import Model
from probes.series.transitions.shapes import Shape

Series = Float64[np.ndarray, " n"]


def beyond_basis(basis: np.ndarray, course: np.ndarray) -> np.ndarray:
    """The part of a course outside of a basis, of length 1."""
    rest = course - basis @ (basis.T @ course)
    return rest / max(float(np.linalg.norm(rest)), 1e-300)


def basis_with(model: Model, white: np.ndarray, course: np.ndarray) -> np.ndarray:
    """A basis of the columns of the baseline that are in use beside a shape."""
    if model.cone is None:
        return model.basis
    rest, beyond = (one - model.basis @ (model.basis.T @ one) for one in (white, course))
    _, weights, _ = model.cone.fit(rest, model.sign, beyond)
    used = np.flatnonzero(weights > 0)
    q, _ = np.linalg.qr(model.cone.triangle[:, used])
    return np.column_stack([model.basis, model.cone.basis @ q]) if len(used) else model.basis


def gains_of(
    basis: Columns, white: Series, courses: Columns, whole: np.ndarray, net: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """What a baseline leaves, how much less with each shape, and which shapes are beyond it and agree with the record.

    whole are the squared lengths of the courses, net what the record itself does over each (see `agree`).
    """
    rest = white - basis @ (basis.T @ white)
    beyond = whole - ((basis.T @ courses) ** 2).sum(0)
    along = courses.T @ rest
    enough = beyond > short_constants.BEYOND_BASELINE**2 * whole
    enough &= agree(along / np.maximum(beyond, 1e-12), net)
    return float(rest @ rest), np.where(enough, along**2 / np.where(enough, beyond, 1.0), 0.0), enough


def finest(shape: Shape, net: float, law: Law, white: Series, basis: Columns) -> Shape:
    """The best of the shapes between one and its neighbours on the grid, beside one baseline."""
    finer = shape.finer()
    courses = law.whiten(np.column_stack([one(len(white)) for one in finer]))
    _, gain, _ = gains_of(basis, white, courses, (courses**2).sum(0), np.full(len(finer), net))
    return finer[int(gain.argmax())]


def is_beyond(basis: Columns, course: Series) -> bool:
    """Whether a course differs from what a basis spans."""
    whole = float(course @ course)
    inside = basis.T @ course
    return whole - float(inside @ inside) > short_constants.BEYOND_BASELINE**2 * whole


def agree(height: Any, net: Any) -> Any:
    """Whether the record really moves as a shape of this height says: in its direction, and by some of it."""
    return (
        (height * net > 0) & (np.abs(net) > 0.3 * np.abs(height)) & (np.abs(height) < short_constants.SHAPE_HEIGHTS[1])
    )


def left_without(model: Model, white: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """What is left of a whitened record without a shape, the weights of a cone, and a basis of what is in use."""
    rest = white - model.basis @ (model.basis.T @ white)
    if model.cone is None:
        return float(rest @ rest), np.zeros(0), model.basis
    left, weights, _ = model.cone.fit(rest, model.sign)
    used = np.flatnonzero(weights > 0)
    if not len(used):
        return left, weights, model.basis
    q, _ = np.linalg.qr(model.cone.triangle[:, used])
    return left, weights, np.column_stack([model.basis, model.cone.basis @ q])


def left_with(model: Model, white: np.ndarray, course: np.ndarray) -> tuple[float, float]:
    """What is left beside a whitened shape, and its height."""
    rest = white - model.basis @ (model.basis.T @ white)
    beyond = course - model.basis @ (model.basis.T @ course)
    if model.cone is not None:
        left, _, height = model.cone.fit(rest, model.sign, beyond)
        return left, height
    length = float(beyond @ beyond)
    height = float(beyond @ rest) / max(length, 1e-300)
    return max(float(rest @ rest) - height**2 * length, 0.0), height
