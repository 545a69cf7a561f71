"""Checkpoint Probes: when did what happen inside a training run, and how sure are we?

The mathematics takes arrays and returns values; every function here can be tried at a prompt in one line:

    >>> import numpy as np, probes
    >>> float(probes.effective_rank(np.diag([4, 2, 1, 0.5])).round(4))
    3.1171
"""

from probes.align import Alignment, Shapes, Theory, align
from probes.autocorrelation import loss_autocorrelation, printed_loss_autocorrelation, unbiased_loss_autocorrelation
from probes.curvature import (
    curvature,
    linear_curvature,
    loss_autocorrelation_curvature,
    norm_curvature,
    norm_growth,
    peaks,
    slope,
)
from probes.effective_rank import (
    effective_rank,
    marginalized_effective_rank,
    participation_ratio,
    spectrum_effective_rank,
    spectrum_marginalized_effective_rank,
    spectrum_participation_ratio,
    spectrum_stable_rank,
    stable_rank,
)
from probes.matrices import Factored
from probes.measure import measure
from probes.mode_shapes import Fit, fit_shapes
from probes.modes import (
    convergence_order,
    marginalized_effective_rank_by_mode,
    mode_amplitudes,
    mode_trajectories,
    remove_modes,
)
from probes.monitor import Monitor
from probes.online import Event
from probes.spectra import SVD, frobenius_norm, singular_values, thin_svd
from probes.subspaces import (
    column_subspace_distance,
    principal_angles,
    random_subspace_level,
    subspace_distance,
    subspace_drift,
)
from probes.tables import by_head, mean_over_heads, mean_over_layers, read_table, with_metrics, write_table
from probes.times import half_time, settling_time
from probes.transitions import find_transitions

__all__ = [
    "SVD",
    "Alignment",
    "Event",
    "Factored",
    "Fit",
    "Monitor",
    "Shapes",
    "Theory",
    "align",
    "by_head",
    "column_subspace_distance",
    "convergence_order",
    "curvature",
    "effective_rank",
    "find_transitions",
    "fit_shapes",
    "frobenius_norm",
    "half_time",
    "linear_curvature",
    "loss_autocorrelation",
    "loss_autocorrelation_curvature",
    "marginalized_effective_rank",
    "marginalized_effective_rank_by_mode",
    "mean_over_heads",
    "mean_over_layers",
    "measure",
    "mode_amplitudes",
    "mode_trajectories",
    "norm_curvature",
    "norm_growth",
    "participation_ratio",
    "peaks",
    "principal_angles",
    "printed_loss_autocorrelation",
    "random_subspace_level",
    "read_table",
    "remove_modes",
    "settling_time",
    "singular_values",
    "slope",
    "spectrum_effective_rank",
    "spectrum_marginalized_effective_rank",
    "spectrum_participation_ratio",
    "spectrum_stable_rank",
    "stable_rank",
    "subspace_distance",
    "subspace_drift",
    "thin_svd",
    "unbiased_loss_autocorrelation",
    "with_metrics",
    "write_table",
]
