"""What the catalogue's numbers are made of: a head's leading singular values, and its final modes followed backwards.

    singular_value   s_1 .. s_4 of each checkpoint, sorted: at a crossing two curves change names
    mode_amplitude   u_k^T M(t) v_k, u_k and v_k of the last checkpoint: a mode keeps its name

They are probes like others, so that `measure` keeps, resumes and explains them; no event is searched in them, since the
catalogue's probes are functions of the same spectra and would only be counted twice.
"""

import numpy as np

from probes.measuring.catalogue.probe import LayerHeads, Probe, ProbeValues

MODES = 4


def singular_value(heads: LayerHeads) -> ProbeValues:
    """The largest, of as many as there are."""
    return _filled(heads.singular_values.numpy()[:, :MODES], heads)


def mode_amplitude(heads: LayerHeads, reference: LayerHeads) -> ProbeValues:
    """Of the modes of the reference, the largest there first."""
    from probes.matrices.modes import mode_amplitudes
    from probes.matrices.spectra import SVD, thin_svd

    if reference.shape != heads.shape:
        why = f"it is {heads.shape[1:]}, and {reference.shape[1:]} in the last checkpoint"
        return ProbeValues.nothing(len(heads), MODES, why)
    basis = thin_svd(reference.matrix)
    leading = SVD(basis.left[..., :MODES], basis.values[..., :MODES], basis.right[..., :MODES])
    found = _filled(np.asarray(mode_amplitudes(heads.matrix, leading)), heads)
    unusable = {n: why for n, why in enumerate(reference.missing_reason) if why}
    values, missing = found.values.copy(), dict(found.why_missing)
    for head, why in unusable.items():
        values[head] = np.nan
        missing |= {(head, k): f"in the last checkpoint {why}" for k in range(MODES)}
    return ProbeValues(values, missing)


def _filled(numbers: np.ndarray, heads: LayerHeads) -> ProbeValues:
    """As many columns as there are modes, with the reason where there is no number."""
    values, missing = np.full((len(heads), MODES), np.nan), {}
    values[:, : numbers.shape[1]] = numbers
    for head, usable in enumerate(heads.is_usable.tolist()):
        if not usable:
            values[head] = np.nan
            missing |= {(head, k): heads.missing_reason[head] or "not usable" for k in range(MODES)}
        for k in range(numbers.shape[1], MODES):
            missing.setdefault((head, k), f"a matrix of {heads.shape[1:]} has {numbers.shape[1]} singular values")
    return ProbeValues(values, missing)


SINGULAR_VALUE = Probe(
    "singular_value",
    singular_value,
    "k-th largest singular value, k = component",
    "weights",
    "probes.singular_values",
    components=MODES,
)
MODE_AMPLITUDE = Probe(
    "mode_amplitude",
    mode_amplitude,
    "u_k^T M(t) v_k, u_k and v_k the k-th singular vectors of the last checkpoint, k = component",
    "weights",
    "probes.mode_amplitudes",
    reads="current, reference",
    components=MODES,
)
SPECTRA = (SINGULAR_VALUE, MODE_AMPLITUDE)
