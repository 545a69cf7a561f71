"""The numbers on which the search in bins of long records rests: what each decides, and where it comes from.

Of the same four sorts as in `constants.py`.
"""

MOST_BINS, NARROWEST = 200, 0.03
"""Bins at most, and how narrow they get, in ln t. Judgement: a usual drop, a logistic of .12 of its step, is four bins
wide; two hundred means cost a tenth of a second."""

MEMORIES = {
    2: (0.0, 0.5),
    5: (0.0, 0.5),
    10: (0.0, 0.3, 0.9),
    20: (0.0, 0.03, 0.3, 0.9, 0.99),
    50: (0.0, 0.03, 0.3, 0.9, 0.99),
    100: (0.0, 0.03, 0.3, 0.9, 0.99),
    300: (0.0, 0.03, 0.3, 0.9, 0.99),
    1000: (0.0, 0.03, 0.3, 0.9, 0.99),
    4000: (0.0, 0.03, 0.3, 0.9, 0.99),
    16000: (0.0, 0.03, 0.3, 0.9, 0.99),
    64000: (0.0, 0.03, 0.3, 0.9, 0.99),
}
"""Memories of the noise that are tried, in values: rho = 1 - 1 / memory; and for each the shares of independent noise.
Geometry: from two values to a random walk over the whole record, under as much independent noise as hides it."""

BESIDE_A_WALK, WALKS, WALKS_IN_TIME = (1, 5, 20), (0.1, 0.5), (0.1, 0.5, 0.9, 0.99, 0.999)
"""Memories, in values, of noise under which a walk over the whole record may hide, and shares of the variance of a
value that are the walk's: from value to value, and in time where steps are uneven. Geometry."""

MOST_LAWS, LIKELY = 4, 6.0
"""Laws that are kept, beside straight lines and beside all that is slow, and by how much less likely than the best one,
in log likelihood. Tuned: beside straight lines alone a loss that falls in ln t is taken for a random walk, and plain
drops at 300 log-spaced steps were missed; beside all that is slow alone, twelve walks of 96 raised an alarm
(eight with both, six with the tails below)."""

LEAST_NOISE = 1e-6
"""Least size of the noise of a value, of the range. Judgement: a noise-free curve is judged by the misfit of its
baselines."""

SHARP_STEPS = (0.4,)
"""Width, in bins, of steps within one bin. Judgement: where in the bin is for the location to say."""

AVERAGED = 8
"""Bins on either side of a step whose mean must change as the step says. Judgement: of two, early ones of a few values
each may do so by chance."""

SLOW_ALIKE = 1e-2
"""Decays and smooth curves that are mixtures of the others to within this share are left out where laws are compared.
Judgement: ten to twelve columns are left."""

COARSE_WIDTH = 2.0
"""Width, in bins, of the steps beside which laws are compared. Judgement."""

MOST_STEPS, HIDDEN_STEPS = 6, 1
"""Steps looked for in one record, and those that are not sure beside which another one is looked for. Judgement."""

APART = 0.35
"""In ln t: two steps nearer than this are one, as for stages. Judgement."""

# Of 28 quiet nulls of the tuning seeds with T > 14, nine had their step before the twentieth value.
FEWEST_BEFORE = 20
"""Values before the middle of a step. Judgement: the size of the noise is known as a median over forty values, and at
the steep beginning of a curve is another at each of them (of 24 nulls with a step of T > 20, nine had it before)."""

TAIL_MEMORIES, TAIL_STARTS, TAIL_SCALE = (0.0, 0.8, 0.9, 1.0), (10.0, 15.0, 19.0, 23.0), 2.7
"""P(T > x) = .1 exp(-(x - start) / scale) where nothing happens, the start by the mean correlation of neighbours.
Drawn at 300 log-spaced and 1000 even steps, ten laws, 100 draws each, as `python -m benchmarks.null_tails bins` draws
them at more: 90 % quantiles of 10 to 12 up to a correlation of one half, 13 at .7 and .8, 19 at .9, 21 to 24 above
that; scales of 1.6 to 4.3. The starts run a little above most of them."""

WARMED_UP, WARM_UP_COST = (0.015, 0.005), 3.0
"""Shares of a record at which the learning rate may have stopped growing, beside those of `short_constants.py`, and
what a warm-up costs, in log likelihood. Tuned: without the first, two of sixteen dense losses under a cosine schedule
raise an alarm, with them none; at no cost .754 of 346 visible transitions are found, at this one .763."""
