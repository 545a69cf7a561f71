"""What people write themselves with torch.save, safetensors and our own writer, in every naming that was met."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from checkpoints import RunWriter
from tests import small_gpt2
from tests.layouts.layout import BY_HAND, Layout, State, config_into, torch_saved, weights


def safetensors_files(folder: Path) -> Mapping[int, State]:
    for step in (0, 1000):
        save_file(weights(step), folder / f"model_step_{step}.safetensors")
    return {step: weights(step) for step in (0, 1000)}


def shards(folder: Path, *, index: bool) -> Mapping[int, State]:
    for step in (5, 10):
        small_gpt2.sharded(folder / f"step{step}", weights(step), index=index)
    return {step: weights(step) for step in (5, 10)}


def stages(folder: Path, *names: str) -> Mapping[int, State]:
    for name in names:
        (folder / name).mkdir()
        save_file(weights(len(name)), folder / name / "model.safetensors")
    lengths = dict(zip((10, 20, 25), map(len, names), strict=False))
    return {step: weights(length) for step, length in lengths.items() if not (step == 25 and "ingredient" in names[2])}


FIRST = ("stage1-step10-tokens1B", "stage1-step20-tokens20B")
FORKS = ("stage2-ingredient1-step5-tokens1B", "stage2-ingredient2-step5-tokens1B")


def both_formats(folder: Path) -> Mapping[int, State]:
    for step in (1, 2):
        save_file(weights(step), folder / f"step{step}.safetensors")
        torch.save(weights(step), folder / f"step{step}.pt")
    return {step: weights(step) for step in (1, 2)}


def our_own(folder: Path) -> Mapping[int, State]:
    with RunWriter(folder / "run", small_gpt2.CONFIG.to_dict(), family="gpt2") as writer:
        for step in (0, 10):
            writer.save(step, weights(step))
    return {step: weights(step) for step in (0, 10)}


def one_file(folder: Path) -> Mapping[int, State]:
    content = {"model": weights(7), "optimizer": {"state": {}}, "iter_num": 7, "model_args": {"n_head": 2}}
    torch.save(content, folder / "ckpt.pt")
    return {7: weights(7)}


def wrapped_by(wrapper) -> Mapping[int, State]:
    """Files of a wrapped model, which puts something into every name."""
    for step in (1, 2):
        state = wrapper(small_gpt2.model(step)).state_dict()
        torch.save({name: tensor for name, tensor in state.items() if "lm_head" not in name}, f"step{step}.pt")
    return {step: weights(step) for step in (1, 2)}


def lens_repository(folder: Path) -> Mapping[int, State]:
    (folder / "checkpoints").mkdir()
    for tokens in (1000, 2000):
        fused, blocks = weights(tokens), {}
        for layer in (0, 1):
            attn = f"transformer.h.{layer}.attn."
            parts = fused[attn + "c_attn.weight"].reshape(16, 3, 2, 8)
            for place, name in enumerate("QKV"):
                blocks[f"blocks.{layer}.attn.W_{name}"] = parts[:, place].transpose(0, 1).contiguous()
            blocks[f"blocks.{layer}.attn.W_O"] = fused[attn + "c_proj.weight"].reshape(2, 8, 16)
        torch.save(blocks, folder / "checkpoints" / f"tokens_{tokens:09d}.pth")
    shape = {"n_heads": 2, "d_model": 16, "d_head": 8, "n_layers": 2, "n_ctx": 8}
    (folder / "config.json").write_text(json.dumps(shape))
    return {tokens: weights(tokens) for tokens in (1000, 2000)}


def folders(folder: Path, *, pattern: str, file: str) -> Mapping[int, State]:
    for step in (10, 20):
        torch_saved(f"{pattern}/{file}", step)(folder)
        config_into(folder / pattern.format(step))
    return {step: weights(step) for step in (10, 20)}


def scaled(pattern: str, scale: int, *numbers: int) -> Callable[[Path], Mapping[int, State]]:
    """Names that count in thousands or millions."""
    return lambda folder: {n * scale: state for n, state in torch_saved(pattern, *numbers)(folder).items()}


def early_and_late(folder: Path) -> Mapping[int, State]:
    return {3: torch_saved("early.pt", 1)(folder)[1], 9: torch_saved("late.pt", 2)(folder)[2]}


def with_its_epoch(state: State, epoch: int) -> dict:
    return {"epoch": epoch, "arch": "gpt", "state_dict": state}


def with_its_step(state: State, step: int) -> dict:
    return {"model_state_dict": state, "optimizer_state_dict": {"state": {}}, "step": step, "loss": 1.5}


TORCH, SAFE = "torch.save", "safetensors"
EPOCHS = "are epochs and not updates"
ALONE = {"config": {}}
"""Opened without a word of ours on the number of heads."""

LAYOUTS = [
    Layout("model_10.pth", TORCH, torch_saved("model_{}.pth", 10, 20), "number"),
    Layout("10.pth", TORCH, torch_saved("{}.pth", 9, 10), "number"),
    Layout("vit-10.pt", TORCH, torch_saved("vit-{}.pt", 10, 20), "number"),
    Layout("model.10.pt", TORCH, torch_saved("model.{}.pt", 10, 20), "number"),
    Layout("model10.pt", TORCH, torch_saved("model{}.pt", 10, 20), "number"),
    Layout("model_16_10_0.5.pt, one number changing", TORCH, torch_saved("model_16_{}_0.5.pt", 10, 20), "number"),
    Layout("step_20k.pt", TORCH, scaled("step_{}k.pt", 1000, 5, 20)),
    Layout("step_2M.pt", TORCH, scaled("step_{}M.pt", 10**6, 1, 2)),
    Layout("iter_0000100.pt", TORCH, torch_saved("iter_{:07d}.pt", 100, 200)),
    Layout("model-step100.bin", TORCH, torch_saved("model-step{}.bin", 100, 200)),
    Layout(
        "step1.pt in torch's format before 1.6",
        TORCH,
        torch_saved("step{}.pt", 1, 2, _use_new_zipfile_serialization=False),
    ),
    Layout("epoch_1.pt", TORCH, torch_saved("epoch_{}.pt", 1, 2), "epoch", EPOCHS),
    Layout(
        "checkpoint_0001.pth.tar with its epoch inside",
        TORCH,
        torch_saved("checkpoint_{:04d}.pth.tar", 1, 2, wrap=with_its_epoch),
        "epoch",
        EPOCHS,
    ),
    Layout("model_10.pt with its step inside", TORCH, torch_saved("model_{}.pt", 10, 20, wrap=with_its_step)),
    Layout("10/model.pt", TORCH, partial(folders, pattern="{}", file="model.pt"), "number", opening=ALONE),
    Layout(
        "step-10/pytorch_model.bin",
        TORCH,
        partial(folders, pattern="step-{}", file="pytorch_model.bin"),
        opening=ALONE,
    ),
    Layout(
        "10.pth beside best.pth and last.ckpt",
        TORCH,
        torch_saved("{}.pth", 1, 2, beside=("best.pth", "last.ckpt")),
        "number",
        "best.pth, last.ckpt",
    ),
    Layout("run/ckpts/step10.pt", TORCH, torch_saved("run/ckpts/step{}.pt", 10, 20)),
    Layout(
        "a-step10.pt beside b-step10.pt",
        TORCH,
        torch_saved("a-step{}.pt", 10, 20, beside=("b-step10.pt", "b-step20.pt")),
        opening={"steps": "a-step{step}.pt"},
    ),
    Layout("early.pt, late.pt", TORCH, early_and_late, opening={"steps": {3: "early.pt", 9: "late.pt"}}),
    Layout("ckpt.pt of nanoGPT", TORCH, one_file, opening=ALONE),
    Layout("step1.pt of nn.DataParallel", TORCH, lambda _: wrapped_by(torch.nn.DataParallel)),
    Layout("step1.pt of torch.compile", TORCH, lambda _: wrapped_by(torch.compile)),
    Layout(
        "checkpoints/tokens_000001000.pth of TransformerLens",
        BY_HAND.format("TransformerLens' author"),
        lens_repository,
        "token",
        "are tokens and not updates",
        ALONE,
    ),
    Layout("model_step_10.safetensors", SAFE, safetensors_files),
    Layout("step10/model-00001-of-00003.safetensors, an index", SAFE, partial(shards, index=True), opening=ALONE),
    Layout("step10/model-00001-of-00003.safetensors, no index", SAFE, partial(shards, index=False), opening=ALONE),
    Layout("step1.pt beside step1.safetensors", SAFE, both_formats, says="step1.pt, step2.pt"),
    Layout(
        "stage1-step10-tokens1B/, stage2-step5-tokens1B/",
        SAFE,
        lambda folder: stages(folder, *FIRST, "stage2-step5-tokens1B"),
        says="stage2 counts anew, 20 is added",
    ),
    Layout(
        "stage1-step10/, stage2-ingredient1-step5/, stage2-ingredient2-step5/",
        SAFE,
        lambda folder: stages(folder, *FIRST, *FORKS),
        says="only stage1 is opened",
    ),
    Layout("run/step-000000010.safetensors", "checkpoints.RunWriter", our_own, opening=ALONE),
]
