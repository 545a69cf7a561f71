"""`open_run`: whatever people have, as a run.

open_run("runs/mine")                                     our run directory
open_run("output")                                        Hugging Face Trainer: output/checkpoint-500/ ...
open_run("pythia")                                        folders or files with the step in their names
open_run("model.safetensors"), open_run("ckpt.pt")        one checkpoint, sharded or not
open_run("hub:EleutherAI/pythia-70m", revisions="step*")  a hub repository with one revision per step
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoints.files.checkpoint import abridged
from checkpoints.heads.layout import Family
from checkpoints.run import Run
from checkpoints.sources import run_directory, step_folders, trainer_output, transformer_lens

if TYPE_CHECKING:
    from checkpoints.hub import Hub

FOLDERS = (
    (run_directory.find, "a run directory (run.json)"),
    (trainer_output.find, "Hugging Face Trainer output (checkpoint-500/ ...)"),
    (step_folders.find, "folders or files with a step in their names (step1000/, model-step1000.pt ...)"),
    (transformer_lens.find, "a TransformerLens repository (checkpoints/*_1000.pth)"),
    (step_folders.find_single, "one checkpoint (*.safetensors, *.pt, *.pth, *.bin, *.ckpt, sharded or not)"),
)


def open_run(
    source: str | Path,
    *,
    revisions: str | None = None,
    config: Mapping[str, Any] | None = None,
    family: Family | str | None = None,
    hub: "Hub | None" = None,
) -> Run:
    """Open a run; raises with what it looked for where there is none.

    config adds to, or replaces, what the source says of the model's shape, e.g. {"num_attention_heads": 12}. family
    describes how an unknown architecture stores its attention weights, or is the name of a known one to insist on.
    revisions (a pattern such as "step*") and hub (server, cache, token) are for sources that begin with "hub:".
    """
    if str(source).startswith("hub:"):
        from checkpoints.sources.hub import find

        run = find(str(source).removeprefix("hub:"), revisions or "*", hub)
    elif revisions is not None or hub is not None:
        raise ValueError(f"revisions and hub are for sources that begin with 'hub:', {str(source)!r} does not")
    else:
        run = _on_disk(Path(source))
    if config:
        run = replace(run, config={**run.config, **config})
    return replace(run, family_override=family) if family else run


def _on_disk(path: Path) -> Run:
    if not path.exists():
        hint = "" if path.is_absolute() or str(path).count("/") != 1 else f" For a hub repository write 'hub:{path}'."
        raise FileNotFoundError(f"{path} does not exist.{hint}")
    path = path.absolute()  # a worker may be somewhere else
    for find, _ in FOLDERS[-1:] if path.is_file() else FOLDERS:
        run = find(path)
        if run is not None:
            return run
    inside = abridged(sorted(entry.name for entry in path.iterdir())) if path.is_dir() else "a file"
    looked_for = "; ".join(what for _, what in FOLDERS)
    raise ValueError(f"{path} is not a run (it holds {inside}). Looked for: {looked_for}")
