"""What there is to run: the papers, their groups of pages, and every page in one line.

A group is what belongs together: its pages share their runs, and its verdicts are one committed file, which `make
verdicts` writes. A page is the module of its name in the folder of its paper. To add a page, write that module with a
function `run(size, runs)` that returns a `Page`, and give it a line here: the command line, the figures and the tests
find it.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SIZES = ("toy", "quick", "paper")


@dataclass(frozen=True)
class Paper:
    """Who wrote it, its title, a note on the words used in its pages, and the folder of `analyses` that has them.

    Under the key "own" are promises of this project rather than claims of a paper.
    """

    authors: str
    title: str
    note: str
    folder: str


PAPERS = {
    "000": Paper(
        "Mainali & Teixeira",
        "Exact learning dynamics of in-context learning in linear transformers and its application",
        "“Printed” is the theory as the paper gives it; “exact” keeps the noise of finite contexts, which it drops.",
        "paper_000_exact_dynamics",
    ),
    "001": Paper(
        "Zhang, Singh, Latham & Saxe",
        "Training dynamics of in-context learning in linear attention",
        "Several heads, keys and queries of rank R.",
        "paper_001_multi_head",
    ),
    "002": Paper(
        "Zhang, Frei & Bartlett",
        "Trained transformers learn linear models in-context",
        "Merged weights; what happens away from the training distribution.",
        "paper_002_merged_weights",
    ),
    "003": Paper(
        "Bordelon, Letey & Pehlevan",
        "Theory of scaling laws for in-context regression: depth, width, context and time",
        "ISO, FS and RRS are isotropic data, one fixed covariance, and covariances rotated anew in every context. "
        "Exponents are given with 95 % intervals of the fit.",
        "paper_003_depth_and_context",
    ),
    "004": Paper(
        "Lyu, Wang & Zhu",
        "A solvable attention for neural scaling laws",
        "ψ is the context length and Λ the strength of a task. Exponents are given with 95 % intervals of the fit.",
        "paper_004_sparse_tasks",
    ),
    "own": Paper(
        "this project",
        "what find_transitions promises",
        "Shares are given with 95 % intervals (Clopper-Pearson); peers are tuned on other seeds than those all are judged on.",
        "calibration",
    ),
}


@dataclass(frozen=True)
class Group:
    """Pages of one paper that are judged together. size is that of the committed verdicts.

    ships are files of the pages that are committed as well: where each goes, from the root of the project.
    """

    paper: str
    pages: dict[str, str]
    verdicts: str = "VERDICTS.md"
    size: str = "quick"
    ships: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdicts_file(self) -> Path:
        """Where the committed verdicts of the group are."""
        return Path(__file__).parent / PAPERS[self.paper].folder / self.verdicts


GROUPS = {
    "linear": Group(
        "000",
        {
            "fixed_point": "Fig 1 of paper 000: where the parameters end up",
            "mode_trajectories": "Fig 2: how each mode grows, and what is conserved",
            "loss_plateaus": "Fig 3A: plateaus and cliffs of the loss",
            "timescale_separation": "Fig 4: what the probes see of it",
        },
        verdicts="VERDICTS_LINEAR.md",
        size="paper",
    ),
    "transformers": Group(
        "000",
        {
            "icl_emergence": "Figs 5 and 6: attention-only transformers that begin to learn in context",
            "grokking": "Figs 3B and 7: modular addition, understood long after it was learned by heart",
            "published_models": "Figs 5 and 6 on the paper's own models, with --source",
        },
        verdicts="VERDICTS_TRANSFORMERS.md",
    ),
    "live": Group(
        "000",
        {"live_monitor": "the closing section: stages announced while they happen"},
        verdicts="VERDICTS_LIVE.md",
    ),
    "multi_head": Group(
        "001",
        {
            "multi_head_plateaus": "Fig 1a of paper 001: plateaus and drops of the loss of several heads",
            "multi_head_reduced": "Figs 1b, 1c: heads, eigenvectors and the reduced equation",
            "multi_head_fixed_points": "sections 3.1, D, E: the fixed points, which are visited, and zero blocks",
            "multi_head_ranks": "Figs 2, 7, 8: plateaus and the rank of keys and queries",
            "multi_head_repeated": "Fig 9: repeated eigenvalues at every rank",
            "multi_head_variants": "Figs 3, 4, 5: softmax, initialisation, next-token loss",
            "multi_head_algorithm": "section 3.3: principal component regression in context",
        },
    ),
    "merged_weights": Group(
        "002",
        {
            "merged_weights_flow": "Theorems 4.1 and 4.5 of paper 002: gradient flow and its limit",
            "merged_weights_landscape": "section 5, Appendices A, C: the loss, its minima, and the way past the saddle",
            "merged_weights_errors": "Theorem 4.2: prediction error on new prompts",
            "merged_weights_shifts": "sections 4.2 and 4.3: task, query and covariate shift",
        },
    ),
    "depth": Group(
        "003",
        {
            "depth_isotropic": "Figs 1, 2 of paper 003: isotropic data, depth against context",
            "depth_whitening": "Fig 3: one fixed covariance, and its brittleness",
            "depth_time": "Figs 4, 8: rotated covariances, the laws of time and depth, untied layers",
            "depth_width": "Result 7, Figs 5a, b: finite width and context",
            "depth_shape": "Result 8, Fig 5c: the best shape of a model",
            "depth_attention": "Figs 6a, b: all weights of linear attention in training",
            "depth_softmax": "Figs 6c, 9: softmax attention, alone and with MLPs",
            "depth_shallow": "Result 10, Fig 7: SGD on one layer",
        },
    ),
    "sparse": Group(
        "004",
        {
            "sparse_solution": "Fig 2 of paper 004: how many sparse tasks are learned",
            "sparse_general": "Figs 6, 7, Appendix A: nearly sparse features, idempotent H, unseen strengths",
            "sparse_scaling": "Figs 3, 4: scaling laws of time, size, data and compute",
            "sparse_softmax": "Figs 8, 9, 10: softmax attention, by gradient descent and by AdamW",
            "sparse_capacity": "Fig 5: softmax attention on features that are not sparse",
        },
    ),
    "calibration": Group(
        "own",
        {"calibration": "how often find_transitions is right: series with known truth, beside its peers"},
        size="paper",
        ships={
            "calibration.csv": "probes/series/calibration.csv",
            "CALIBRATION.md": "analyses/calibration/CALIBRATION.md",
        },
    ),
}

FROM_ELSEWHERE = ("published_models",)
"""Pages on models that were not trained here: their `run` takes a `source` as well."""

GROUP_OF = {page: name for name, group in GROUPS.items() for page in group.pages}
"""The name of the group of every page, in the order in which all of them are run."""


def description(page: str) -> str:
    """What a page is about, in a line."""
    return GROUPS[GROUP_OF[page]].pages[page]


def paper_of(page: str) -> str:
    """The number of the paper that a page judges: a key of PAPERS."""
    return GROUPS[GROUP_OF[page]].paper


def module_of(page: str) -> str:
    """The module that has the page's `run`."""
    return f"{__package__}.{PAPERS[paper_of(page)].folder}.{page}"


def chosen_pages(names: Sequence[str] = (), papers: Sequence[str] = ()) -> list[str]:
    """Pages by their own names, by those of groups, and by the numbers of papers, each once; all if nothing is said.

    An unknown name or number raises with the nearest that is known.
    """
    for name in names:
        _must_be_known("page or group", name, [*GROUP_OF, *GROUPS])
    for number in papers:
        _must_be_known("paper", number, list(PAPERS))
    by_name = [page for name in names for page in (GROUPS[name].pages if name in GROUPS else (name,))]
    by_paper = [page for number in papers for page in GROUP_OF if paper_of(page) == number]
    return list(dict.fromkeys(by_name + by_paper)) if names or papers else list(GROUP_OF)


def whole_groups(pages: Sequence[str]) -> list[str]:
    """The groups that these pages make up; a group of which only some pages are there raises."""
    found = list(dict.fromkeys(GROUP_OF[page] for page in pages))
    for name in found:
        missing = [page for page in GROUPS[name].pages if page not in pages]
        if missing:
            raise ValueError(
                f"the verdicts of {name} are one file: {', '.join(missing)} must be run too. Name {name!r}"
            )
    return found


def _must_be_known(kind: str, name: str, known: list[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        meant = f"did you mean {', '.join(near)}? " if near else ""
        raise ValueError(f"no {kind} is called {name!r}: {meant}There are {', '.join(known)}")
