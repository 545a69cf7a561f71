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

MOST_LAWS, LIKELY = 6, 6.0
"""Laws that are kept, and by how much less likely than the best one, in log likelihood. Judgement."""

LEAST_NOISE = 1e-6
"""Least size of the noise of a value, of the range. Judgement: a noise-free curve is judged by the misfit of its
baselines."""

SHARP_STEPS = (0.4,)
"""Width, in bins, of steps within one bin. Judgement: where in the bin is for the location to say."""

AVERAGED = 8
"""Bins on either side of a step whose mean must change as the step says. Judgement: of two, early ones of a few values
each may do so by chance."""

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

# Some fifty pairs of a law and a schedule; the line runs above most of their quantiles, not above all.
TAIL_START, TAIL_PER_MEMORY, TAIL_SCALE = 10.0, 7.0, 2.7
"""P(T > x) = .1 exp(-(x - start) / scale) where nothing happens, start = 10 + 7 x the mean correlation of neighbouring
bins. Tuned on 53 laws and schedules of 300 to 20,000 values, 80 draws each (`python -m benchmarks.null_tails bins`):
90 % quantiles of 8 to 10 without correlation, 9 to 14 at one half, 12 to 22 at .9 and more; scales of 1 to 4.8,
2.5 on average. An upper envelope of most."""
