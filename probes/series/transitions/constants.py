"""Every number that `find_transitions` rests on: what it decides, and where it comes from.

    geometry     follows from a formula that stands beside it
    convention   a level or a quantile that others would choose as well
    tuned        by hand on staged losses of the solvable model, with the null series of `probes.datasets` as the limit;
                 `python -m benchmarks` judges the outcome on seeds that were used for nothing else
    judgement    what a cliff, a dip or the end of one is taken to mean; another choice would be another definition

None of them depends on the units of the series or of its steps: heights are fractions of its range, widths and distances
fractions of the step, or multiples of a width that was found.
"""

import numpy as np

# The series (find.py)

FEWEST = 30
"""Shortest series that is looked at. Judgement: below this the noise cannot be told from the curve."""

SHORTEST = 1.2
"""Last step over first. Geometry: a shorter stretch has no room for the four narrowest blocks around any place."""

SPIKE = 6.0
"""Robust standard deviations from the running median beyond which a single value is clipped. Tuned: 4 clipped the steep
part of cliffs."""

SPIKE_MEDIAN, SPIKE_SCALE, SPIKE_QUANTILE = 11, 101, 90
"""Values in the running median, values around which the scale is taken, and the percentile of their distances that is
the scale. Judgement: robust as long as fewer than one value in ten is a spike; a median would be fooled by a curve that
runs through its own running median."""

NORMAL_AT_SPIKE_QUANTILE = 1.645
"""The 90 % quantile of |N(0, 1)|. Geometry."""

FLANK_WIDTHS, FLANK_STRENGTH = 2, 4
"""A cliff nearer to a dip than two of its block widths, and less than four times as strong, is the way down into it.
Judgement: a test has a large cliff that is followed by a small dip and must stay one."""

# The noise (noise.py)

QUANTILE = 0.3
"""Of the third differences of block means, read as the size of the noise. Tuned: a median takes the transitions for
noise where a few of them fill most of the large blocks."""

NORMAL_AT_QUANTILE, NORMAL_MEDIAN = 0.38532, 0.67449
"""The 30 % quantile and the median of |N(0, 1)|. Geometry."""

FEWEST_DIFFERENCES = 12
"""Of neighbouring blocks, for the noise of means of that many values to be measured rather than carried on. Judgement."""

NOISE_BIN, NOISE_BIN_LENGTH = 40, 0.25
"""The noise of one value is a median over at least 40 values and over .25 in ln(step). Judgement: a median of 40 is known
to 20 %, and noise that falls with the loss changes little in a quarter of an e-fold."""

RANDOM_WALK_GROWTH = 4.0
"""Fourfold per octave: how fast the variance of means of a random walk grows against that of independent values.
Geometry; what grows faster is the curve."""

FIRST_GROWTH = 7.0
"""The same up to blocks of four, where a walk is not smooth yet: it measures 5.4 there, then 4.25, 4.04 ... Tuned: 7
leaves room for the sampling error of short series."""

ROUNDING = 1e-9
"""Smallest noise, as a share of the range. Judgement: above the rounding of float64, below any noise that matters."""

# The scan for places that are not convex (convexity.py)

BLOCK_WIDTHS = 0.01 * 2 ** (np.arange(12) / 2)
"""Block widths tried, as fractions of the centre: .01 to .45 by sqrt(2). Geometry: above .45 the four blocks and the gap,
4.5 widths, reach before step 0."""

GAP = 0.5
"""Between the inner blocks, of a block. Tuned: the steepest part of a cliff belongs to neither side."""

CENTRES_PER_WIDTH = 3
"""Places tried per width of a block, or of a step. Judgement: a third of a width loses a few per cent of z at most."""

FEWEST_IN_BLOCK = 2
"""Values in each of the four blocks. Judgement."""

FASTER_INSIDE = 1.5
"""Rate of descent within the drop over that before and after. Judgement: what a rapid drop means."""

RETURN_ALLOWED = 0.25
"""Rise before or after, as a share of the drop. Judgement: with more it comes down from a spike, or is a dip."""

# Cliffs (cliffs.py)

STEP_WIDTHS = (0.3, 0.16, 0.08, 0.04, 0.02, 0.01)
"""Logistic widths tried, as fractions of the centre. Geometry: the modes of the solvable model have .1 to .15 (the time
t* is ln(1 / start) / rate); .3 is no longer rapid, .01 lasts a hundredth of the run so far."""

GATE = 0.05
"""Level of the convexity test, which is the first of two. Convention."""

CELLS_PER_PLACE = 3
"""Independent widths and centres of the scan around one place, that the gate counts. Tuned."""

NEIGHBOURHOOD = 0.15
"""In ln(step): how far from a fitted step its z in the scan may lie. Tuned: half of the widest step."""

INDEPENDENT_CELLS, INDEPENDENT_STEPS = 0.1, 0.3
"""Shares of the cells of the scan, and of the (centre, width) grid of steps, that are as good as independent. Tuned so
that null series raise an alarm as often as alpha says: on convex nulls P(p < .01) was .012."""

CORRELATED = 1.6
"""Inflation of the variance of a mean above which the noise counts as correlated. Tuned on autocorrelated nulls."""

DEGREES_OF_FREEDOM, FREEDOM_IF_CORRELATED = 50, 15
"""Of the noise: heavier tails than normal because it is itself estimated, and from few large blocks where it is
correlated. Tuned; a trade: fewer degrees for correlated noise cost recall, more of them false alarms on random walks."""

SMALLEST_DROP = 0.01
"""Of the range. Judgement: what is smaller is not worth a row."""

CLOSEST = 0.2
"""Two cliffs nearer than this fraction of the step are one. Judgement: modes that are less than a factor 1.5 apart in
time cannot be told apart by eye either (one in five was found)."""

EXPLAINED_BLOCKS, EXPLAINED_WIDTHS = 1.25, 2.5
"""A step explains the places within so many of their block widths, or so many of its own. Geometry: the outer edge of the
inner blocks (half a gap and one block, 1.25); a logistic is 85 % done within 2.5 widths."""

WINDOW_BEFORE, WINDOW_AFTER, WINDOW_WIDTHS = 0.25, 2.5, 12
"""What surrounds a step when it is fitted: from a quarter to two and a half times its centre, at most twelve widths
either side. Tuned: enough to see the decays it stands between, not so much that a mixture of decays no longer fits."""

BINS, FEWEST_BINS, FEWEST_AT_SCALE = 60, 12, 3
"""Means in the window; how many of them must hold a value; values within two widths of the centre. Judgement: sixty
resolve the narrowest step, and a fit of eight numbers needs more than eight."""

FITTED_NUMBERS = 8
"""Roughly how many numbers a mixture of decays and a step fits, taken off the bins. Judgement."""

RATES = np.geomspace(0.05, 200.0, 24)
"""Of the decaying exponentials, per length of the window. Geometry: from almost straight to gone within a third of a bin;
24 of them, a factor 1.4 apart, stand for any mixture."""

KINKS, KINK_STRETCHES = 20, (0.7, 1.0, 1.4)
"""Places tried for a single change of slope, and the stretches of the step that it has to beat. Tuned on the null series
with a kink."""

LOOK_BACK, BEFORE_AND_AFTER, STAYS_DOWN = 12, (3, 5), 0.5
"""A cliff stays down: its mean three to five widths after lies below every mean from twelve to three widths before, by
half of its height. Judgement: what comes back from a bump leads nowhere."""

LOCATE_WIDTHS, LOCATE_STRETCH = 3, 1.2
"""How far the place (in widths) and the width (in its logarithm) may move when a step is located. Judgement: beyond that
it is some other step."""

PROFILE = 3.84
"""chi^2 with one degree of freedom at 95 %. Convention."""

PROFILE_STRETCHES = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
"""Widths, over the best one, that are tried at each place of the profile. Judgement."""

HALF_OF_SQUARE = -np.log(np.sqrt(2) - 1)
"""(1 - logistic(x))^2 = 1/2 at x = -this. Geometry: the loss is quadratic in what grows logistically."""

# Dips (dips.py)

DIP_WIDTHS = 0.02 * 2 ** (np.arange(10) / 2)
"""Block widths tried, as fractions of the centre: .02 to .45. Tuned: narrower ones found the noise of short series."""

DIP_INDEPENDENT_CELLS = 0.1
"""As for cliffs. Tuned."""

DIP_DEGREES_OF_FREEDOM, DIP_FREEDOM_IF_CORRELATED = 20, 8
"""Fewer than for cliffs: a dip is three blocks, and correlation at its scale rests on a handful of them. Tuned on random
walks, which go down and come back; short correlated series (50 values, rho .8) still raise too many alarms."""

SMALLEST_DEPTH = 0.02
"""Of the range. Judgement."""

DIP_FEWEST_IN_BLOCK = 3
"""Values in each of the three blocks. Judgement."""

DIP_BINS, DIP_CLOSER, DIP_ROUNDS = 30, 0.6, 2
"""The bottom is found by a parabola through thirty means within one block width, then twice within .6 of it. Judgement:
a dip is a parabola only near its bottom."""

DIPS_APART = 1.5
"""Block widths of both together: nearer dips are one. Geometry: the three blocks of one reach 1.5 widths."""

# Settling (settling.py)

TOLERANCE = 0.1
"""How far from the level at the end, as a share of the size of the last transition. Convention: 90 % is there."""

LATEST = 2 / 3
"""Of what remains after the transition: the series must have settled by then. Judgement: one that still moves in the last
third has not settled, and where its level is taken from, the last half, would be moving too."""

SETTLED_FEWEST, CENTRES_PER_WINDOW = 8, 8
"""Means looked at, at least, and how many of them per width of the transition. Judgement."""

SETTLED_SDS = (6.0, 4.0, 3.0)
"""Standard deviations added to the tolerance for the early end of the interval, the step and the late end. Judgement:
among hundreds of means one is three off by chance, hardly one four."""
