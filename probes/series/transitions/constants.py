"""Every number that `find_transitions` rests on: what it decides, and where it comes from.

    geometry     follows from a formula that stands beside it
    convention   a level or a quantile that others would choose as well
    tuned        by hand on a few seeds of staged losses, with null series as the limit
    judgement    what a cliff, a dip or the end of one is taken to mean; another choice would be another definition

`python -m benchmarks` judges the outcome on seeds that were used for nothing else. Where a text says what happens with
another value, that was counted on 405 null series of `probes.datasets` (45 of each kind, 300 to 4000 steps) and on 12
staged losses with 40 cliffs, noise 5 and 15 %: as it is there are 2 false alarms, both on slow random walks, 37 cliffs
found, and 2 found where there is none. "No difference" is a difference of at most one.

Those of short records, which are tested value by value, stand in `short_constants.py`.

None of them depends on the units of the series or of its steps: heights are fractions of its range, widths and
distances fractions of the step, or multiples of a width that was found.
"""

import numpy as np

# The series (find.py)

FEWEST = 20
"""Shortest series that is looked at. Judgement: below this the noise cannot be told from the curve, and
the level is not kept."""

SHORTEST = 1.2
"""Last step over first. Judgement: a shorter stretch has room for the narrowest blocks only."""

SPIKE = 6.0
"""Robust standard deviations from the running median beyond which a single value is clipped. Judgement: 4 and 20 make
no difference where there are no spikes."""

SPIKE_MEDIAN, SPIKE_SCALE, SPIKE_QUANTILE = 11, 101, 90
"""Values in the running median, values that the scale is taken over, and the percentile of their distances that is
the scale. Judgement: robust as long as fewer than one value in ten is a spike; a median would be fooled by curves
that run through their own running median."""

NORMAL_AT_SPIKE_QUANTILE = 1.645
"""The 90 % quantile of |N(0, 1)|. Geometry."""

FLANK_WIDTHS, FLANK_STRENGTH = 2, 4
"""A cliff nearer to a dip than two of its block widths, and less than four times as strong, is the way down into it.
Judgement: a large cliff that is followed by a small dip stays a cliff."""

TESTS = 4
"""Searches among which alpha is divided in equal parts: cliffs that fall, cliffs that rise, stages in both directions,
dips and spikes. Convention (Bonferroni)."""

SAME_PLACE = 0.35
"""In ln t: a stage that near to a cliff, or within two of its widths, is that cliff. Judgement: the valley test puts a
cliff up to .35 away from where the fit does."""

BACK_BLOCK, BACK_WITHIN = 2.0, 0.5
"""A cliff after which the series is back (to within RETURN_ALLOWED of its height) within half of its step is a dip, or
a spike; means over two of its widths say so. Judgement: a loss that rises for longer than that has risen."""

SHARP_END = 0.1
"""Width of a step over that of a dip, whose way back it is. Judgement: a decay that ends in a jump is no dip."""

RECOVERY, RECOVERY_REACH, RECOVERY_SPACING, RECOVERY_WIDTHS = 0.3, 300.0, 0.1, 5.9
"""A fall is the end of a spike if the series rose by .3 of its height or more since a 300th of its step, surely, and
half of that rise is no longer before half of the fall than the fall takes, 5.9 widths from a twentieth to nineteen of
them; means over .1 in ln t say so. Judgement: what stays up for longer than it takes to fall has a level of its own."""

RECOVERY_EARLY, RECOVERY_RATIO, RECOVERY_DEEPER = 0.15, 3.0, 1 / 3
"""And if all of it lies in the first .15 of the record; or else half of the fall is at less than three times the step
of half of the rise, and no more than a third of it lies below where the rise began. Judgement: a loss that was high for
most of its record, or ends far below where it began, has learned something; a spike of the warm-up may be followed by
all the learning there is."""

RECOVERY_SDS = 4.0
"""Standard deviations of its top and of its bottom, added, at which such a rise is sure. Tuned: of the falls after
twenty warm-up spikes seven were called cliffs when it had to exceed .3 of the fall by three, one is now; at three, the
correlated noise before two true transitions is taken for a rise."""

ABRUPT, ABRUPT_OVER_USUAL = 0.3, 5.0
"""A learning rate changes abruptly where its logarithm changes by so much between two entries, and by so many times the
median of the changes around it. Judgement: a step decay is ln 2 or more, a fast cosine or warm-up is smooth."""

ABRUPT_NEIGHBOURS = 10
"""Changes either side that the median is taken over. Judgement."""

# Where one could look (searched.py)

USUAL_WIDTH = 0.12
"""Logistic width of a usual drop as a fraction of its step. Geometry: a mode of the solvable model that grows a
thousandfold has .11 to .15."""

SEARCH_SPACING = 0.04
"""In ln t, between the places that are asked about. Judgement: a third of a usual width."""

SHORTEST_STRETCH = 5
"""Places in a row that a stretch must have, and over which single ones are smoothed away. Judgement: next to the limit
whether a place is seen depends on where the values happen to lie."""

SURE_OF_VALUES = 1.8
"""As NINE_IN_TEN, for short records, where rho is estimated as well. Tuned: 1.3 gave .8 inside instead of .9."""

FIT_OVER_SCAN = 1.8
"""How much larger the statistic of the fitted step comes out than that of the scan. Measured on usual drops."""

NINE_IN_TEN = 2.0
"""Standard deviations by which a statistic must lie above its threshold to pass in nine of ten draws. Tuned: the noise
is estimated as well, and drops with few values before them are missed more often than 1.3 says. Of 360 usual drops in
300 to 5000 values, .89 of those inside were found with 1.3, and .91 with this."""

SEARCHED_ENOUGH = 0.5
"""Share of the record, in ln t, below which a warning says how little was searched. Convention."""

# The noise (noise.py)

QUANTILE = 0.3
"""Of the third differences of block means, read as the size of the noise. Judgement: where a few transitions fill
most of the large blocks, a median takes them for noise. (A median makes no difference where they do not.)"""

NORMAL_AT_QUANTILE, NORMAL_MEDIAN = 0.38532, 0.67449
"""The 30 % quantile and the median of |N(0, 1)|. Geometry."""

LATE_PART = 2
"""Where steps are uneven, correlation is measured over all values and over the later half, and the larger counts:
what wanders in time moves more between late values that are far apart, and hides in the noise of early ones."""

FEWEST_DIFFERENCES = 12
"""Of neighbouring blocks, for the noise of means of that many values to be measured and not carried on. Tuned: with
40 too little of the correlation is seen (19 alarms); 6 makes no difference."""

NOISE_BIN, NOISE_BIN_LENGTH = 40, 0.25
"""The noise of one value is a median over at least 40 values and over .25 in ln(step). Judgement: from 40 values it
is known to 20 %, and noise that falls with the loss changes little in a quarter of an e-fold."""

RANDOM_WALK_GROWTH = 4.0
"""How fast the variance of means of a random walk grows against that of independent values, per octave: fourfold.
Geometry; what grows faster is the curve. (With 2 there are 53 alarms.)"""

FIRST_GROWTH = 7.0
"""The same up to blocks of four, where a walk is not smooth yet: a long one measures 5.4 there, then 4.25, 4.04 ...
Tuned: 7 leaves room for the sampling error of short series (4: 4 alarms; 15: no difference)."""

ROUNDING = 1e-9
"""Smallest noise, as a share of the range. Judgement: above the rounding of float64, below any noise that matters."""

# The scan for places that are not convex (convexity.py)

BLOCK_WIDTHS = 0.01 * 2 ** (np.arange(12) / 2)
"""Block widths tried, as fractions of the centre: .01 to .45 by sqrt(2). Geometry: the two outer blocks end 2.25
widths from the centre, so that blocks wider than .44 reach to step 0."""

GAP = 0.5
"""Between the inner blocks, in blocks: the steepest part of a cliff belongs to neither side. Tuned, not sharply:
without a gap and with one of a whole block all 40 cliffs are found."""

CENTRES_PER_WIDTH = 3
"""Places tried per width of a block, or of a step. Judgement."""

FEWEST_IN_BLOCK = 2
"""Values in each of the four blocks. Judgement: one value has no mean to speak of."""

FASTER_INSIDE = 1.5
"""Rate of descent within the drop over that before and after. Judgement, what a rapid drop means: with 3 only 15 of
the 40 cliffs are found; 1 makes no difference to what is found."""

RETURN_ALLOWED = 0.25
"""Rise before or after, as a share of the drop. Judgement: with more it comes down from a spike, or is a dip."""

# Cliffs (cliffs.py)

STEP_WIDTHS = (0.3, 0.16, 0.08, 0.04, 0.02, 0.01)
"""Logistic widths tried, as fractions of the centre. Geometry: a mode of the solvable model has 1 / ln(end / start),
.11 to .15 for a thousandfold growth; .3 is hardly rapid, .01 lasts a few hundredths of the run so far."""

GATE = 0.05
"""Level of the convexity test, which is the first of two. Convention. (.5: all 40 found, 3 alarms; .005: 37 and
1.)"""

CELLS_PER_PLACE = 3
"""Independent widths and centres around one place, which the gate counts. Tuned, not sharply: 1 to 30 find 40 to
37."""

NEIGHBOURHOOD = 0.15
"""In ln(step): how far from a fitted step the scan may speak for it. Tuned: .05 and .5 make no difference."""

INDEPENDENT_CELLS, INDEPENDENT_STEPS = 0.1, 0.3
"""Shares of the cells of the scan, and of the (centre, width) grid of steps, that are as good as independent. Tuned
so that nulls raise no more alarms than alpha says: with a tenth of the second there are 8; the first makes no
difference."""

CORRELATED = 1.6
"""Inflation of the variance of a mean above which the noise counts as correlated. Tuned: 1.1 and 3 make no
difference."""

DEGREES_OF_FREEDOM, FREEDOM_IF_CORRELATED = 50, 15
"""Of the noise: heavier tails than normal because it is itself estimated, and from few large blocks where it is
correlated. Tuned, a trade: with 5 for correlated noise 35 cliffs are found, with 50 there is an alarm more."""

SMALLEST_DROP = 0.01
"""Of the range. Judgement: what is smaller is not worth a row."""

CLOSEST = 0.2
"""Two cliffs nearer than this fraction of the step are one. Judgement: of modes a factor 1.5 apart in time one in
five is told apart, and below 2 the clean curve itself has no second bump."""

EXPLAINED_BLOCKS, EXPLAINED_WIDTHS = 1.25, 2.5
"""A step explains places within so many of their block widths, or so many of its own. Geometry: the inner blocks end
half a gap and one block from the centre, 1.25; a logistic has done 85 % within 2.5 widths of its middle."""

WINDOW_BEFORE, WINDOW_AFTER, WINDOW_WIDTHS = 0.25, 2.5, 12
"""What surrounds a step when it is fitted: from a quarter to two and a half times its centre, at most twelve widths
either side. Tuned, not sharply: 6 widths find 36, 24 find 37. The online search looks back as far as this needs."""

BINS, FEWEST_BINS, FEWEST_AT_SCALE = 60, 12, 3
"""Means in the window; how many of them must hold a value; values within two widths of the centre. Judgement: sixty
resolve any step in twelve of its widths, and a fit of some eight numbers needs more than eight."""

FITTED_NUMBERS = 8
"""Roughly how many numbers a mixture of decays and a step fits; taken off the number of bins. Judgement."""

RATES = np.geomspace(0.05, 200.0, 24)
"""Of the decaying exponentials, per length of the window. Geometry: from almost straight to gone within a third of a
bin; a factor 1.4 apart, they stand for any mixture."""

KINKS, KINK_STRETCHES = 20, (0.7, 1.0, 1.4)
"""Places tried for a single change of slope, which is refined, and the stretches of the step that it has to beat.
Tuned on nulls with a kink."""

LOOK_BACK, BEFORE_AND_AFTER, STAYS_DOWN = 12, (3, 5), 0.5
"""A cliff stays down: its mean three to five widths after lies below every mean from twelve to three widths before,
by half of its height. Judgement: what only comes back from a bump leads nowhere."""

LOCATE_WIDTHS, LOCATE_STRETCH = 3, 1.2
"""How far the place (in widths) and the width (in its logarithm) may move when a step is located. Judgement: further
off it is some other step."""

PROFILE = 3.84
"""chi^2 with one degree of freedom at 95 %. Convention."""

PROFILE_STRETCHES = (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
"""Widths, over the best one, that are tried at each place of the profile. Judgement."""

SHAPE_ERROR, LARGEST_SHAPE_ERROR = 0.2, 2.2
"""In widths, added to both sides of the interval of a cliff in quadrature. The first was tuned on saddles, whose foot
is taken for a decay: their half-drop is found .013 of its step late, whatever the noise. It grows with the misfit of
the best shape up to the second, beyond which a tenth of a logistic is left: two steps that are taken for one fit badly,
and where one of them is cannot be told better. Geometry."""

STEP_POWERS, USUAL_POWERS = (1, 2, 0.5, 4, 8), (1, 2)
"""Powers of the logistic with which a cliff is located, and those whose width is reported. Tuned on saddles a' = a^p
(1 - a) with p = 1, 4/3, 3/2 and on logistics in ln t: with 1 and 2 alone intervals covered .44 and .67 of them."""

HALF_OF_SQUARE = -np.log(np.sqrt(2) - 1)
"""(1 - logistic(x))^2 = 1/2 at x = -this. Geometry: a loss is quadratic in what grows logistically."""

# Stages (stages.py, log_fit.py)

SLOPE_WIDTHS = 0.08 * 2 ** (np.arange(6) / 2)
"""Widths in ln t over which the descent is seen: .08 to .45 by sqrt(2). Judgement: narrower is the business of cliffs;
what takes more than an e-fold is no stage."""

SLOPES_PER_WIDTH, SLOPE_FEWEST = 4, 4
"""Centres per width, and values in each of the two blocks. Judgement."""

HUMP_WIDTHS = 1.5
"""Least distance of a, b, c, d in widths. Geometry: nearer than two widths they share values; at 1.5 a quarter of
them, which makes them agree and so errs on the side of silence."""

HUMP_RATIO = 1.15
"""Descent at a hump over that in the valleys on both sides. Judgement: less is no stage that anybody would name."""

STAGES_APART = 0.35
"""In ln t: two humps nearer than this are one. Judgement, as for the widest cliffs."""

SMALLEST_STAGE = 0.01
"""Drop of a stage beyond what its surroundings go on doing, of the range. Judgement: what is smaller is not worth a
row."""

LOG_BINS, LOG_FEWEST_BINS = 40, 10
"""Means in the window around a stage, and how many must hold a value. Judgement: the fit has five numbers."""

LOG_CENTRES = np.linspace(-1.5, 1.5, 61)
"""Places tried for the middle of a stage, in widths of the slope from the hump. Judgement."""

LOG_FITTED = 6
"""Numbers that such a fit has: three of the background, height, place and width. Geometry."""

LOG_WIDTHS = (0.1, 0.15, 0.22, 0.33, 0.5, 0.75, 1.1)
"""Logistic widths tried, in widths of the slope. Geometry: a difference of two blocks of width w is steepest where a
logistic has about a quarter of w."""

# Dips (dips.py)

DIP_WIDTHS = 0.02 * 2 ** (np.arange(10) / 2)
"""Block widths tried, as fractions of the centre: .02 to .45. Judgement: from .01 on makes no difference."""

WIDEST_SPIKE = 0.25
"""Block width of a spike as a fraction of its step. Judgement: what goes up for longer has a maximum, not a spike, as
the test loss before grokking; a dip may take its time, as that of a rank does."""

DIP_INDEPENDENT_CELLS = 0.1
"""As for cliffs. Tuned: with a tenth of it there are 14 alarms."""

DIP_DEGREES_OF_FREEDOM, DIP_FREEDOM_IF_CORRELATED = 20, 8
"""Fewer than for cliffs: a dip is three blocks, and correlation at its scale rests on a handful of them. Tuned on
random walks, which go down and come back: with 50 there are 16 alarms. Short correlated series still raise too many
(50 values with rho .8: one in four)."""

SMALLEST_DEPTH = 0.02
"""Of the range. Judgement: what is smaller is not worth a row."""

SHOULDER = 0.1
"""How far, as a share of its depth, the series beside a dip lies above the chord from the block before that to the
bottom. Judgement: a dip has shoulders; a U-shape, and a decay that ends in a jump, come down ever more slowly."""

DIP_FEWEST_IN_BLOCK = 3
"""Values in each of the three blocks. Judgement."""

DIP_BINS, DIP_CLOSER, DIP_ROUNDS = 30, 0.6, 4
"""The bottom is that of a polynomial through thirty means within a block width, then within .6 of that, and up to four
times within .6 of the last. Judgement: a dip is a polynomial only near its bottom."""

DIP_SEEN, DIP_SHAPE_ERROR = 0.3, 0.05
"""How long its interval may be, in lengths on either side of what is looked at, for a closer look to count; and what
is added to both sides of it in quadrature. Tuned on dips whose flanks differ: intervals held the bottom of a third of
them, and do of nine in ten."""

DIP_BINS_PER_POWER = 3
"""Means for each power of the polynomial, up to the fourth. Judgement. A parabola alone turns .02 of the step late
where flanks differ in t, as those of a Gaussian in ln t do."""

DIPS_APART = 1.5
"""Block widths of both, added: nearer dips are one. Geometry: the three blocks of a dip end 1.5 widths from its
centre."""

# Settling (settling.py)

TOLERANCE = 0.1
"""How far from the level at the end, as a share of the size of the last transition. Convention: 90 % is there."""

LATEST = 2 / 3
"""Of what remains after the transition: by then the series must have settled. Judgement: what still moves in the last
third has not; nor is its level known, which is the mean over the last half."""

SETTLED_FEWEST, CENTRES_PER_WINDOW = 8, 8
"""Means looked at, at least, and how many of them per width of the transition. Judgement."""

SETTLED_SDS = (6.0, 4.0, 3.0)
"""Standard deviations added to the tolerance for the early end of the interval, for the step and for the late end.
Judgement: of hundreds of means one is three off by chance, hardly one four."""
