"""What random weights score, from a formula, is what random weights do score; and every probe says what it is worth."""

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from latex2mathml.converter import convert

import probes
from probes.measuring.catalogue import PROBES, as_probes, null_levels

SHAPES = [(32, 32, 16), (64, 64, 8), (96, 32, 16), (48, 48, 48), (192, 192, 24), (64, 64, None), (32, 160, None)]
DRAWS = 150

# how far a law of large matrices is from matrices this small (of 1,500 draws: .010, .018, .041 at most)
OFF = {
    "effective_rank": 0.01,
    "marginalized_effective_rank": 0.01,
    "participation_ratio": 0.02,
    "stable_rank": 0.042,
    "subspace_distance": 0.0,
    "column_subspace_distance": 0.0,
    "subspace_drift": 0.0,
}


def drawn(rows: int, columns: int, inner: int | None, seed: int):
    rng = np.random.default_rng(seed)
    if inner is None:
        return rng.normal(size=(DRAWS, rows, columns))
    return probes.Factored(rng.normal(size=(DRAWS, rows, inner)), rng.normal(size=(DRAWS, inner, columns)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OFF)
def test_random_weights_score_what_the_formula_says(name, shape):
    first, second = drawn(*shape, seed=0), drawn(*shape, seed=1)
    function = getattr(probes, name)
    if name.startswith("marginalized"):
        scored = function(first, removed=4)
    elif "subspace" in name:
        normalised = {} if name == "subspace_drift" else {"normalised": True}
        scored = np.square(function(first, second, **normalised))[:, None]  # exact for the root mean square
    else:
        scored = function(first)[:, None]
    said = PROBES[name].null_levels(*shape) ** (2 if "subspace" in name else 1)
    of_the_draws = 4 * scored.std(0) / np.sqrt(DRAWS)
    assert said.shape == scored.shape[1:]
    assert (np.abs(said - scored.mean(0)) <= OFF[name] * said + of_the_draws + 1e-9).all(), (said, scored.mean(0))


def test_levels_done_by_hand():
    assert PROBES["subspace_distance"].null_levels(32, 32, 16) == pytest.approx(np.sqrt(0.5))
    assert PROBES["column_subspace_distance"].null_levels(64, 32, 16) == pytest.approx(np.sqrt(0.75))
    assert null_levels.participation_ratio(10, 10) == pytest.approx(100 / 21)
    # Marchenko-Pastur ends at (1 + sqrt(c))²: c = 1 has its edge at 4 times the mean
    assert null_levels.stable_rank(4000, 4000) == pytest.approx(1000, rel=0.02)
    # as many directions as there are when each side is far larger than the inside
    assert null_levels.effective_rank(10**6, 10**6, 8) == pytest.approx(8, rel=1e-4)


def test_a_matrix_of_few_dimensions_has_a_rank_of_one_at_least_and_none_where_nothing_is_left():
    levels = as_probes(["marginalized_effective_rank"], removed=3)[0].null_levels(5, 5, 2)
    assert levels[1] == 1
    assert np.isnan(levels[2:]).all()
    assert null_levels.stable_rank(9, 9, 1) == 1


def test_the_level_is_the_same_whichever_side_is_longer():
    for name in ("effective_rank", "stable_rank", "participation_ratio"):
        there, back = PROBES[name].null_levels(96, 32, 16), PROBES[name].null_levels(32, 96, 16)
        np.testing.assert_allclose(there, back, rtol=1e-9)


def test_shapes_that_cannot_be_are_refused():
    for shape in ((0, 3, None), (8, 8, 9), (8, 8, 0)):
        with pytest.raises(ValueError, match="inner"):
            PROBES["participation_ratio"].null_levels(*shape)


@pytest.mark.parametrize("probe", PROBES.values(), ids=list(PROBES))
def test_every_probe_of_the_catalogue_has_a_formula_a_null_level_or_why_not_and_says_what_it_cannot_tell(probe):
    mathml = ElementTree.fromstring(convert(probe.formula))
    assert not any("\\" in (part.text or "") for part in mathml.iter()), (
        "a command that is not understood is left as text"
    )
    assert probe.citation
    assert probe.null.endswith(".")
    assert probe.cannot_tell.endswith(".")
    level = probe.null_levels(32, 32, 16)
    assert level.shape == (probe.count,)
    assert np.isnan(level).all() == probe.null.startswith("There is none: ")


def test_a_probe_of_ones_own_needs_none_of_this():
    own = probes.Probe.of_spectrum("top", lambda s: s[:, 0])
    assert (own.formula, own.null, own.cannot_tell) == ("", "", "")
    assert np.isnan(own.null_levels(32, 32, 16)).all()


def test_the_catalogue_needs_no_torch():
    code = "import sys; from probes.measuring.catalogue import PROBES; PROBES['effective_rank'].null_levels(8, 8, 4)"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
