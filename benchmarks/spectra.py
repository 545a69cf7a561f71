"""Singular values of attention heads: from the factors, against a dense SVD and TransformerLens' FactoredMatrix."""

import torch
from transformer_lens.FactoredMatrix import FactoredMatrix

from benchmarks.clock import best_of_turns
from probes import Factored, singular_values

SHAPES = {"GPT-2 small": (144, 768, 64), "16 heads of 128": (16, 2048, 128)}


def run() -> None:
    """Print time per head and the ratios for both shapes, then how the cost grows with d_model."""
    print(f"Singular values of one head, float32 weights, {torch.get_num_threads()} thread(s). Times in ms per head.")
    print(f"{'shape':>18} {'heads':>6} {'d_model':>8} {'d_head':>7} {'ours':>8} {'dense':>10} {'TransformerLens':>16}")
    generator = torch.Generator().manual_seed(0)
    for name, (heads, d_model, d_head) in SHAPES.items():
        left = torch.randn(heads, d_model, d_head, generator=generator) / d_model**0.5
        right = torch.randn(heads, d_head, d_model, generator=generator) / d_model**0.5
        seconds = best_of_turns(
            {
                "ours": lambda left=left, right=right: singular_values(Factored(left, right)),
                "TransformerLens": lambda left=left, right=right: FactoredMatrix(left, right).svd(),
            }
        )
        dense = best_of_turns({"dense": lambda left=left, right=right: torch.linalg.svdvals(left[0] @ right[0])}, 3)
        ours, lens, full = 1e3 * seconds["ours"] / heads, 1e3 * seconds["TransformerLens"] / heads, 1e3 * dense["dense"]
        print(f"{name:>18} {heads:6d} {d_model:8d} {d_head:7d} {ours:8.3f} {full:10.1f} {lens:16.2f}")
        print(f"{'':>18} {'ratio to ours':>23} {'1':>8} {f'{full / ours:.0f}x':>10} {f'{lens / ours:.1f}x':>16}")

    print("\nGrowth with d_model at d_head 64 (12 heads), ours:")
    routes = {}
    for d_model in (512, 1024, 2048, 4096):
        matrix = Factored(
            torch.randn(12, d_model, 64, generator=generator), torch.randn(12, 64, d_model, generator=generator)
        )
        routes[str(d_model)] = lambda matrix=matrix: singular_values(matrix)
    growth = best_of_turns(routes)
    for d_model, seconds in growth.items():
        per_head = 1e3 * seconds / 12
        print(f"  d_model {d_model:>5}: {per_head:6.3f} ms per head, {1e3 * per_head / int(d_model):.3f} us per row")
