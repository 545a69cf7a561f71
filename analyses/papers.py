"""The papers whose claims are judged, and what to know before reading the verdicts on each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """Who wrote it, its title, and a note on the words used in its pages."""

    authors: str
    title: str
    note: str


PAPERS = {
    "000": Paper(
        "Mainali & Teixeira",
        "Exact learning dynamics of in-context learning in linear transformers and its application",
        "“Printed” is the theory as the paper gives it; “exact” keeps the noise of finite contexts, which it drops.",
    ),
    "001": Paper(
        "Zhang, Singh, Latham & Saxe",
        "Training dynamics of in-context learning in linear attention",
        "Several heads, keys and queries of rank R.",
    ),
    "002": Paper(
        "Zhang, Frei & Bartlett",
        "Trained transformers learn linear models in-context",
        "Merged weights; what happens away from the training distribution.",
    ),
    "003": Paper(
        "Bordelon, Letey & Pehlevan",
        "Theory of scaling laws for in-context regression: depth, width, context and time",
        "ISO, FS and RRS are isotropic data, one fixed covariance, and covariances rotated anew in every context. "
        "Exponents are given with 95 % intervals of the fit.",
    ),
    "004": Paper(
        "Lyu, Wang & Zhu",
        "A solvable attention for neural scaling laws",
        "ψ is the context length and Λ the strength of a task. Exponents are given with 95 % intervals of the fit.",
    ),
}
