"""The numbers on which the search in short records (up to 250 values) rests: what each decides, where it comes from.

Of the same four sorts as in `constants.py`. Tuned ones were tuned on smooth drifts with AR(1) noise (rho 0, .5, .8) and
on usual drops, on 20 to 200 even, log-spaced and doubling-then-even steps.
"""

SHORT = 250
"""Most values that are tested one by one; more are tested by blocks. Tuned: with fewer than that the correlation of the
noise at the scale of a block cannot be measured (50 values with rho .8 raised a dip in one of four); with more, faint
noise shows what six columns miss (.08 false alarms on 300 log-spaced values)."""

SPLINE_COLUMNS, VALUES_PER_COLUMN = (4,), 4
"""Columns of the splines, at most one for every four values. Tuned: with 9 and 12 as well, .79 of usual drops on 200
even values are found instead of 1.0, and wide dips are taken for drift."""

SAME_AXIS = 0.05
"""Two time axes that never differ by more are one. Judgement."""

DECAY_RATIO, FASTEST_DECAY, SLOWEST_DECAY = 2.3, 1e-18, 0.7
"""Time constants of the decays of a baseline, as shares of the record, and their ratio; none is shorter than the first
gap. Geometry: a factor 2.3 apart they stand for any mixture to within a percent. (With 5e-6 as the shortest, a loss
that falls smoothly over seven decades of log-spaced steps raised an alarm in five of six.)"""

SAME_DIRECTION = 1e-7
"""Length of what sets a column apart from others, all of length 1, below which it is rounding. Geometry: decays and
decays of t^2 at log-spaced steps are the same to within it."""

WARM_UP = 0.03
"""Share of the record in which a loss may set out slowly because the learning rate does. Judgement: warm-ups of
published runs take 1 to 3 %; the loss falls with the sum of the learning rate, which grows as t^2 there."""

WARM_UP_COST = 5.0
"""What such a start costs in a short record, in log likelihood; in a long one, nothing. Tuned on log-spaced and
Pythia's steps: at no cost 58 of 102 visible transitions are found, at this one 63. Without such a start five of sixteen
losses under a cosine schedule raise an alarm, with it none."""

RHOS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.96)
"""Autocorrelations tried. Judgement: finer makes no difference to the likelihood of fewer than 300 values."""

WALK_MEMORY, WALK_UNDER_NOISE = 3.0, (0.0, 1e-4, 1e-3, 1e-2, 0.1)
"""Uneven steps: what wanders in t forgets in three times the record, which is a random walk; and the shares of
independent noise above it that are tried. Judgement: at log-spaced steps a walk is lost in a ten-thousandth of its size
at first. Without these, 38 of 40 walks at 150 log-spaced steps raised an alarm, and 14 of 30 at Pythia's under noise;
with them one in forty. At even steps a walk is AR(1) noise; under independent noise of a tenth of its range it raises
an alarm in 4 of 30 records of 100 values and in 12 of 30 of 200. Laws for that were tried: with them one in thirty, but
a loss that falls in three stages is then taken for a walk."""

LEAST_INDEPENDENT = 1e-12
"""Of these shares, the least. Judgement: rounding, over steps that span sixteen decades and more."""

EVEN_GAPS = 3.0
"""Steps are evenly spaced if no gap is larger than so many median ones: one or two may be missing. Judgement."""

FEW_UNEVEN, FEW_POWER = 40.0, 5
"""Fewer values than that, unevenly spaced, know little about rho: p is multiplied by (40 / values)^5. Tuned: of 20
log-spaced values with rho .8 on a smooth drift, .06 were below .01 with the third power, .02 with this."""

FINER, FINER_SHARP = 1.25, 1.7
"""How many times wider and narrower than the best shapes of the grid others are tried. Geometry: half of the ratio of
its widths, and of SHARP_STEPS."""

BUMP_EDGE = 3
"""Least number of values before the middle of a bump. Tuned: on the steep beginning of a curve a bump at its second
value makes up for what the baseline misses."""

BUMP_SKEWS = (1.0, 1.25, 1.6, 1 / 1.25, 1 / 1.6)
"""Roots of the widths of the later flank of a dip over the earlier, when it is located. Tuned: with 1 alone, intervals
held the bottom of few dips that come back more slowly than they set out."""

SHARP, SHAPE_EDGE, VALUES_PER_WIDTH, WIDTH_RATIO = 0.15, 1.5, 12, 1.6
"""Width, in values, of a step between two of them; the least number of values before its middle; the widest, as a share
of the record; and the ratio of widths. Judgement: two values either side, and a step that takes more than a third of
the record is drift."""

BEYOND_BASELINE = 0.05
"""Length of a shape beyond the baseline, as a share of its own. Judgement: below it the two are one."""

SHAPE_HEIGHTS = (0.05, 1.6)
"""Heights that are believed, as shares of the range. Tuned on smooth drifts with faint noise: a lower step makes up
for what the baseline misses, a higher one is held up by it."""

WILD_COST = 3.0
"""What leaving a wild value out costs, in log likelihood. Judgement: the place of one among a hundred is ln 100 = 4.6
and its height 1, less where there are few."""

LOCATE_VALUES, LOCATE_SPACING, SHAPE_STRETCHES = 3.0, 0.25, (0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.2)
"""How far, in values, the place of a change is looked for around the best one of the search (or LOCATE_WIDTHS of its
widths, if that is more), how finely, and with which widths over the best one. Judgement."""

UNUSUAL_COST = 3.0
"""What a step that is neither a logistic nor its square costs, in log likelihood, when a change is located. Judgement:
as much as a wild value. At no cost one of thirty values with a logistic was put 1.6 widths off."""

SHARP_WIDTHS = (0.03, 0.08, 0.15, 0.3, 0.5, 0.75)
"""Widths with which a step between two values is located. Judgement: with the narrowest of them any place between the
two values is as likely as any other."""

WILD_SDS, WILD_SHARE = 5.0, 0.05
"""Standard deviations beyond which a single value is taken for what its surroundings say, and the share of values that
may be. Judgement."""

EXTENT = 1.0, 1.5
"""How far from the middle of a change a value is half-way down, in values and, beside that, in widths. Judgement: a
logistic is four fifths done 1.5 widths after its middle."""

SHARP_STEPS = (0.15, 0.45)
"""Widths, in values, of steps that fall between two values or have one value half-way down. Judgement."""

HIDDEN_SHAPES, HIDDEN_COST = 2, 4.0
"""Changes that are not sure beside which another one is looked for, and by how much p grows with each. Tuned: what is
left beside one that is not sure is no fresh record. At once, twice and three times p, .053 of 50 log-spaced values with
rho .8 raised an alarm, at this cost .033, and as many visible transitions are found."""

LIKELY_WITH_SHAPE = 0.25
"""How much of what a rho gains with a shape counts for it, in log likelihood. Tuned: at .5 one in twenty smooth drifts
of 20 to 50 log-spaced values with rho .8 has p < .01, at this half as many; as many visible transitions are found."""

MOST_SHAPES = 8
"""Changes looked for in one short record. Judgement."""

EXACT_SHAPES = 5
"""Shapes that are fitted beside all that a cone holds; the others beside the columns in use without them. Judgement."""

MOST_PLACES, SEARCHED_EDGE = 48, 2.5
"""Places of a usual drop that are asked about, and how many values before and after it they have at least. Judgement:
of drops nearer to an end one in five was missed; more places take half a second more for each new schedule."""

PLACE_ERROR, SHAPE_ERROR = 0.3, 0.4
"""In values and in widths, added to both sides of the interval in quadrature: where between two values a sharp change
lies the values do not say, and how much of a foot or a tail belongs to a drop no fit can tell. Tuned on 619
transitions in 30 to 200 values: at these .968 are covered, and .936 where steps are sharp (paper 001); with .45 and .5
.982, by intervals a quarter longer; with .25 and .3 .952, of transitions of paper 003 .906."""

SIZE_LR, SIZES = 12.0, (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
"""Twice the gain in log likelihood above which noise has more than one size, and how many times louder than the quiet
end the loud one is, less one. Judgement: of six courses one exceeds 12 in 300 records where the noise has one size."""

LOUDER = 9.0
"""How many times as loud as the quiet end the loud one is, for noise to be taken to have more than one size. Tuned: if
any ratio counts, .65 of visible transitions under noise that is five times as loud at the top of the loss are found
instead of .70 (.75 with one size), and one size keeps the level there. It does not under noise in proportion to a
decay: of 100 values, alarms in one of six drifts, and 1 of 60 with this."""

SIZE_FITS, FREE_VALUE = 3, 0.2
"""How often the size of the noise is taken from a fit, and the share of a value that the fit must leave free for the
rest of it to say how loud the noise is there. Judgement."""

STAGE_SHARE = 0.25
"""Share of alpha that goes to stages in log time; the rest to steps and bumps. Judgement: the bound of a stage falls
tenfold where that of a step hardly changes."""

STAGE_WIDTHS = tuple(0.16 * 2 ** (k / 2) for k in range(7))
"""Widths in ln t over which the descent of a short record is seen: .16 to 1.28 by sqrt(2). Judgement: 150 log-spaced
checkpoints have two values in the narrowest; what takes more than the widest is no stage."""

STAGE_LAGS, STAGE_FEWEST = tuple(range(6, 25)), 5
"""Distances of a, b, c and d, in quarters of a width, and the least number of values around a place. Geometry: 1.5
widths apart, as in `constants.HUMP_WIDTHS`; at more than 6 a wider width sees the same."""

KNOTS_APART, VALUES_PER_KNOT = 0.35, 3
"""Knots of the spline that says how noisy a record is, in ln t and in values. Judgement: an exponential is missed by a
ten-thousandth; what is missed counts as noise."""

UNLIKELY_LAW = 1e-6
"""Laws less likely than that are left out. Judgement: there are fewer than 10^5 pairs."""

STAGE_RHOS, STAGE_STARTS, STAGE_SCALES = (0.0, 0.5, 0.8, 0.96), (-0.1, -0.5, 0.2, 0.8), (0.8, 0.9, 0.9, 1.1)
"""Tail of -ln bound where nothing happens, by rho: P(-ln bound > x) = .1 exp(-(x - start) / scale). Drawn: the heaviest
of 30 to 200 even, log-spaced and doubling-then-even values, 200 draws each (`python -m benchmarks.null_tails stages`);
20 log-spaced values have 1.0 at every rho, and a tail half as long."""
