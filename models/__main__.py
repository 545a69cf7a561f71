"""`python -m models NAME --preset quick|paper --seed 0-4`: train a model and leave its run directories."""

import time
from pathlib import Path
from typing import Annotated

import typer

from models.attention_only.presets import PRESETS as ATTENTION_ONLY
from models.depth_and_context.presets import PRESETS as DEPTH_AND_CONTEXT
from models.linear_icl.presets import PRESETS as LINEAR_ICL
from models.merged_weights.presets import PRESETS as MERGED_WEIGHTS
from models.modular_addition.presets import PRESETS as MODULAR_ADDITION
from models.multi_head.presets import PRESETS as MULTI_HEAD
from models.multitask_sparse.presets import PRESETS as MULTITASK_SPARSE
from models.training import DivergedError

MODELS = {
    "linear-icl": ("In-context vector regression with one linear attention head (paper 000)", LINEAR_ICL),
    "multi-head": ("In-context scalar regression with several linear heads of low rank (paper 001)", MULTI_HEAD),
    "merged-weights": ("In-context scalar regression with one head of merged weights (paper 002)", MERGED_WEIGHTS),
    "depth-and-context": ("In-context regression with deep linear attention (paper 003)", DEPTH_AND_CONTEXT),
    "multitask-sparse": ("Many sparse tasks with linear self-attention (paper 004)", MULTITASK_SPARSE),
    "attention-only": ("Attention layers in which induction heads and in-context learning emerge", ATTENTION_ONLY),
    "modular-addition": ("A transformer that groks arithmetic modulo a prime", MODULAR_ADDITION),
}

RUNS = Path("checkpoints/runs")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Train a model; its checkpoints are the result.",
)


def seeds_of(text: str) -> list[int]:
    """Seeds from "3", "0,2,5" or "0-4"."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise typer.BadParameter(f"{text!r}: a seed (3), a list (0,2,5) or a range (0-4) is expected")
        seeds += range(int(first), int(last) + 1) if dash else [int(first)]
    if not seeds or len(set(seeds)) < len(seeds):
        raise typer.BadParameter(f"{text!r}: names no seed, or one twice")
    return seeds


def _add(name: str, about: str, presets: dict) -> None:
    lines = [f"{about}.", ""]
    for key, preset in presets.items():
        lines += [f"Preset {key}: {preset.steps} steps. Cost: {preset.cost}. Expect: {preset.numbers}.", ""]

    @app.command(name, help="\n".join(lines))
    def command(
        preset: Annotated[str, typer.Option(help=f"One of {', '.join(presets)}.")] = "quick",
        seed: Annotated[
            str, typer.Option(help="A seed (3), a list (0,2,5) or a range (0-4), trained as one batch.")
        ] = "0",
        out: Annotated[Path, typer.Option(help="Where the run directories go.")] = RUNS,
    ) -> None:
        if preset not in presets:
            raise typer.BadParameter(f"{preset!r}: one of {', '.join(presets)} is expected", param_hint="--preset")
        seeds = seeds_of(seed)
        start = time.perf_counter()
        try:
            paths = presets[preset].train(seeds, out, f"{name}-{preset}")
        except (DivergedError, OSError, ValueError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error
        typer.echo(f"{len(paths)} run(s) of {presets[preset].steps} steps in {time.perf_counter() - start:.1f} s:")
        for path in paths:
            typer.echo(f"  {path}")


for _name, (_about, _presets) in MODELS.items():
    _add(_name, _about, _presets)


@app.callback()
def main() -> None:
    """Train a model; its checkpoints are the result. A run that was interrupted goes on where it stopped."""


if __name__ == "__main__":
    app()
