"""What section 4 of paper 000 claims of attention-only transformers, each with the 1-layer models as control.

The rules were fixed on seeds 0-5 and are judged again on seeds that were not looked at before.
"""

from analyses.paper_000_exact_dynamics.icl_emergence_measures import (
    EARLIER,
    LATER,
    Seen,
    at_the_notch,
    by_convergence,
    by_size,
    cliff_of,
    columns_settled,
    drifts,
    earlier_if_deeper,
    ends_able,
    falls_back,
    in_order,
    induction,
    notched,
    peak_of,
    settles_by,
    sighted,
    timed,
    width,
)
from analyses.paper_000_exact_dynamics.icl_emergence_study import Emergence
from analyses.paper_000_exact_dynamics.mode_reach import reach_claims
from analyses.tools.claims import Claim, Unjudged
from analyses.tools.rules import AboveControls, Apart, AtMost, Every, Together
from analyses.tools.study import NEAR, REMOVED, SHOULDER
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART

NOTCH = 0.05  # of the rank: what counts as a sharp V

_V = Apart(NOTCH, " %", 100)
_SEEN = Apart(sightings=True)
_V_WORDS = f"lowest point within a factor {NEAR:g} of emergence, against the line between shoulders a factor {SHOULDER:g} before and after it"

CLAIMS: list[Claim[Seen] | Unjudged[Seen]] = [
    Claim(
        "in-context learning emerges with 2 layers or more and never with 1",
        "section 4 (Olsson et al.)",
        ends_able,
        Apart(0.5),
        "one layer can count what is in the context, and cannot look up what followed",
    ),
    Claim(
        "it emerges suddenly", "section 4 (Olsson et al.)", width, AtMost(0.5), "judged by accuracy on repeated tokens"
    ),
    Claim(
        "(ours) induction heads form then, previous-token heads with them",
        "Olsson et al. 2022",
        induction,
        Apart(0.4),
        "what heads attend to, measured on fixed sequences every 25 steps",
    ),
    Claim(
        "the loss falls in a cliff then",
        "section 4, Fig 3",
        sighted("find_transitions reports a cliff within 30 % of emergence", cliff_of),
        _SEEN,
        "in the loss over all tokens, which is all a trainer sees",
    ),
    Claim(
        "QK effective rank dips around emergence, and not at 1 layer",
        "section 4, Fig 6B, k = 0",
        notched(by_size("qk", 0)),
        _V,
        f"the plain rank; {_V_WORDS}",
    ),
    Claim(
        "marginalized QK rank dips around emergence, and not at 1 layer (removed in order of convergence)",
        "section 4, Fig 6B, k = 4",
        notched(by_convergence("qk")),
        _V,
        "as the paper describes it: without the four modes that converged earliest, followed by their vectors",
    ),
    Claim(
        "(ours) the same, removed by size",
        "beside Fig 6B, k = 4",
        notched(by_size("qk", REMOVED)),
        _V,
        "without the four largest components at every step",
    ),
    Claim(
        "OV effective rank dips around emergence, and not at 1 layer",
        "section 4, Fig 6A, k = 0",
        notched(by_size("ov", 0)),
        _V,
        "the plain rank of OV",
    ),
    Claim(
        "marginalized OV rank dips around emergence, and not at 1 layer (removed in order of convergence)",
        "section 4, Fig 6A, k = 4",
        notched(by_convergence("ov")),
        _V,
        "by the same rule as QK",
    ),
    Claim(
        "(ours) the same, removed by size",
        "beside Fig 6A, k = 4",
        notched(by_size("ov", REMOVED)),
        _V,
        "by the same rule as QK",
    ),
    Claim(
        "marginalized curves have their minima one after another",
        "section 4, Figs 6A, 6B",
        in_order,
        Apart(0.9),
        "removed by size; five places in a random order come to .9 in 4 %",
    ),
    Claim(
        "at 1 layer OV effective rank rises monotonically",
        "section 4, Fig 6A",
        falls_back,
        AtMost(0.1),
        "a fall of a tenth of the range is more than the noise between checkpoints",
    ),
    Claim(
        "subspaces settle before or with emergence",
        "Fig 5",
        settles_by("emergence", lambda _: 1.0),
        Every(),
        "5 % late at no end chosen would be holding; the half-time moves with the end, at 1 layer too, where nothing emerges",
    ),
    Claim(
        "they settle before or with the primary dips of effective rank",
        "section 4, Fig 5",
        settles_by("lowest point of the marginalized QK rank", at_the_notch),
        Every(),
        "by the same 5 %",
    ),
    Claim(
        "especially in deeper models",
        "Fig 5",
        earlier_if_deeper,
        AboveControls(),
        {
            HOLDS: "every model of 3 or 4 layers settles earlier than any of 2",
            IN_PART: "half of the models of 3 and 4 layers settle earlier than any of 2",
            FAILS: "3 and 4 layers do not settle earlier, against their own emergence, than 2",
        },
    ),
    Claim(
        "(ours) the column space of OV, what heads write into, settles before or with emergence",
        "beside Fig 5",
        columns_settled,
        Every(),
        "Eq. (16) is about the row space, this is its twin; by the same 5 %",
    ),
    Claim(
        "(ours) row spaces keep moving until emergence and slow down after it",
        "beside Fig 5",
        drifts,
        Together([AboveControls(), AboveControls()], [f"against {EARLIER:g} of it", f"against {LATER:g} of it"]),
        "needs no end; the control slows down steadily",
    ),
    Claim(
        "peaks of the norm curvature mark emergence",
        "section 4, Fig 4B",
        sighted("a peak within a factor 1.5 of it", peak_of(Emergence.norm_curvature)),
        _SEEN,
        "norm of OV and QK of all heads",
    ),
    Claim(
        "peaks of the loss autocorrelation's curvature mark emergence",
        "section 4, Fig 4A",
        sighted("a peak within a factor 1.5 of it", peak_of(lambda s: s.autocorrelation)),
        _SEEN,
        "of the training loss, in our reading (biased, above its end, in log lag); the noise of the batches is in it",
    ),
    *reach_claims(),
    Claim(
        "the probes time evaluations better than the loss",
        "section 5",
        timed,
        Every(chance=1 / 3),
        "judged in hindsight, which is kinder than a live choice could be: as many evaluations, spread evenly over how far each curve moves",
    ),
]
