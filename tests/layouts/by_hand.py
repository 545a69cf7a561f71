"""Layouts of trainers that are not installed here, written by hand as these trainers write them."""

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from checkpoints import Family
from checkpoints.heads.families.parts import fused
from tests.layouts.layout import BY_HAND, HEADS, Layout, State, config_into, torch_saved, weights


def fairseq(state: State, step: int) -> dict:
    """fairseq.checkpoint_utils: the arguments are a Namespace."""
    return {
        "args": Namespace(arch="transformer_lm_gpt", n_head=2),
        "model": state,
        "optimizer_history": [{"num_updates": step, "optimizer_name": "FairseqAdam"}],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": 2.5},
        "last_optimizer_state": {"state": {}},
    }


def mosaic(state: State, step: int) -> dict:
    """Composer: all of it under "state"."""
    prefixed = {f"model.{name}": tensor for name, tensor in state.items()}
    return {"state": {"model": prefixed, "optimizers": {}, "timestamp": {"Timestamp": {"batch": step}}}, "rng": []}


def mmengine(state: State, step: int) -> dict:
    return {"meta": {"iter": step, "epoch": 1, "experiment_name": "x"}, "state_dict": state, "message_hub": {}}


def unsharded(folder: Path) -> Mapping[int, State]:
    """OLMo 1: model.pt, optim.pt and train.pt beside each other; a link to the latest."""
    for step in (10, 20):
        place = folder / f"step{step}-unsharded"
        torch_saved(f"{place.name}/model.pt", step)(folder)
        torch.save({"state": {0: {"exp_avg": torch.zeros(3)}}}, place / "optim.pt")
        torch.save({"global_step": step, "rng": {}}, place / "train.pt")
        (place / "config.yaml").write_text("model:\n  n_heads: 2\n")
    (folder / "latest-unsharded").symlink_to("step20-unsharded")
    return {step: weights(step) for step in (10, 20)}


def litgpt(folder: Path) -> Mapping[int, State]:
    for step in (10, 20):
        torch_saved(f"step-{step:08d}/lit_model.pth", step, wrap=lambda s, n: {"model": s})(folder)
        (folder / f"step-{step:08d}" / "hyperparameters.yaml").write_text("devices: 1\n")
        torch_saved("final/lit_model.pth", 20)(folder)
    return {step: weights(step) for step in (10, 20)}


def torchtune(folder: Path) -> Mapping[int, State]:
    for epoch in (0, 1):
        place = folder / f"epoch_{epoch}"
        config_into(place)
        save_file(weights(epoch), place / "model-00001-of-00001.safetensors")
    torch_saved("recipe_state/recipe_state.pt", 0)(folder)
    return {epoch: weights(epoch) for epoch in (0, 1)}


def deepspeed_states(place: Path, step: int) -> None:
    """What deepspeed's save_checkpoint writes on one device without partitions."""
    place.mkdir(parents=True)
    content = {
        "module": weights(step), "buffer_names": [], "optimizer": None, "param_shapes": None, "lr_scheduler": None,
        "skipped_steps": 0, "global_steps": step, "global_samples": 8 * step, "dp_world_size": 1, "mp_world_size": 1,
        "ds_config": {"train_batch_size": 8}, "ds_version": "0.16.4",
    }  # fmt: skip
    torch.save(content, place / "mp_rank_00_model_states.pt")
    optimizer = {"optimizer_state_dict": {"state": {0: {"exp_avg": torch.zeros(4)}}}, "ds_version": "0.16.4"}
    torch.save(optimizer, place / "zero_pp_rank_0_mp_rank_00_optim_states.pt")


def deepspeed(folder: Path) -> Mapping[int, State]:
    for step in (10, 20):
        deepspeed_states(folder / f"global_step{step}", step)
    (folder / "latest").write_text("global_step20")
    (folder / "zero_to_fp32.py").write_text("")
    return {step: weights(step) for step in (10, 20)}


def trainer_with_deepspeed(folder: Path) -> Mapping[int, State]:
    for step in (10, 20):
        place = folder / f"checkpoint-{step}"
        deepspeed_states(place / f"global_step{step}", step)
        config_into(place)
        (place / "latest").write_text(f"global_step{step}")
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
        torch.save({"numpy": []}, place / "rng_state.pth")
        torch.save({"last_epoch": step}, place / "scheduler.pt")
    return {step: weights(step) for step in (10, 20)}


def interleaved(state: State, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A layer's fused queries, keys and values head by head, and its output, as Megatron and gpt-neox store them."""
    attn = f"transformer.h.{layer}.attn."
    fused = state[attn + "c_attn.weight"].T.reshape(3, 2, 8, 16).transpose(0, 1).reshape(48, 16)
    return fused.contiguous(), state[attn + "c_proj.weight"].T.contiguous()


def megatron(folder: Path) -> Mapping[int, State]:
    for step in (100, 200):
        encoder = {}
        for layer in (0, 1):
            fused, out = interleaved(weights(step), layer)
            encoder[f"layers.{layer}.self_attention.query_key_value.weight"] = fused
            encoder[f"layers.{layer}.self_attention.dense.weight"] = out
            encoder[f"layers.{layer}.input_layernorm.weight"] = torch.ones(16)
        embedding = {"word_embeddings": {"weight": weights(step)["transformer.wte.weight"]}}
        content = {
            "args": Namespace(num_attention_heads=2, hidden_size=16, num_layers=2),
            "checkpoint_version": 3.0,
            "iteration": step,
            "model": {"language_model": {"embedding": embedding, "encoder": encoder}},
            "optimizer": {"state": {}},
            "rng_state": [{"random_rng_state": None}],
        }
        place = folder / f"iter_{step:07d}" / "mp_rank_00"
        place.mkdir(parents=True)
        torch.save(content, place / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("200")
    return {step: weights(step) for step in (100, 200)}


def neox(folder: Path) -> Mapping[int, State]:
    for step in (100, 200):
        place = folder / f"global_step{step}"
        place.mkdir()
        embedding = {"word_embeddings.weight": weights(step)["transformer.wte.weight"]}
        torch.save(embedding, place / "layer_00-model_00-model_states.pt")
        for layer in (0, 1):
            fused, out = interleaved(weights(step), layer)
            content = {"attention.query_key_value.weight": fused, "attention.dense.weight": out}
            torch.save(content, place / f"layer_{layer + 2:02d}-model_00-model_states.pt")
        states = {"global_steps": step, "module": None, "args": {"num_attention_heads": 2}}
        torch.save(states, place / "mp_rank_00_model_states.pt")
    (folder / "latest").write_text("global_step200")
    return {step: weights(step) for step in (100, 200)}


def by_epoch(state: State, epoch: int) -> dict:
    """timm's CheckpointSaver."""
    return {"epoch": epoch, "arch": "x", "state_dict": state, "optimizer": {"state": {}}, "version": 2}


def at_the_end_of(state: State, iteration: int) -> dict:
    """detectron2's Checkpointer."""
    return {"model": state, "optimizer": {"state": {}}, "iteration": iteration}


def hand(name: str, library: str, save: Callable[[Path], Mapping[int, State]], **more) -> Layout:
    return Layout(name, BY_HAND.format(library), save, **more)


MEGATRON = Family(
    "megatron",
    **fused(
        "language_model.encoder.layers.{layer}.self_attention.query_key_value.weight",
        "(head part d_head) d_model",
        "language_model.encoder.layers.{layer}.self_attention.dense.weight",
    ),
)
ALONE = {"config": {}}
"""Opened without a word of ours on the number of heads."""

LAYOUTS = [
    hand(
        "checkpoint_1_10.pt beside checkpoint_best.pt",
        "fairseq",
        torch_saved("checkpoint_1_{}.pt", 10, 20, wrap=fairseq, beside=("checkpoint_best.pt",)),
        says="checkpoint_best.pt",
    ),
    hand("ep0-ba10-rank0.pt", "MosaicML's composer", torch_saved("ep0-ba{}-rank0.pt", 10, 20, wrap=mosaic)),
    hand("model_0000009.pth", "detectron2", torch_saved("model_{:07d}.pth", 9, 19, wrap=at_the_end_of)),
    hand("iter_10.pth", "mmengine", torch_saved("iter_{}.pth", 10, 20, wrap=mmengine)),
    hand(
        "checkpoint-1.pth.tar beside model_best.pth.tar",
        "timm",
        torch_saved("checkpoint-{}.pth.tar", 1, 2, wrap=by_epoch, beside=("model_best.pth.tar",)),
        unit="epoch",
        says="model_best.pth.tar",
    ),
    hand("step10-unsharded/ with model.pt, optim.pt, train.pt", "OLMo", unsharded),
    hand("step-00000010/lit_model.pth beside final/", "litgpt", litgpt, says="final"),
    hand("epoch_0/model-00001-of-00001.safetensors", "torchtune", torchtune, unit="epoch", opening=ALONE),
    hand("global_step10/mp_rank_00_model_states.pt", "DeepSpeed", deepspeed),
    hand(
        "checkpoint-10/global_step10/mp_rank_00_model_states.pt",
        "transformers.Trainer with DeepSpeed",
        trainer_with_deepspeed,
        opening=ALONE,
    ),
    hand(
        "iter_0000100/mp_rank_00/model_optim_rng.pt",
        "Megatron-LM",
        megatron,
        opening={"config": HEADS, "family": MEGATRON},
    ),
    hand("global_step100/layer_02-model_00-model_states.pt", "gpt-neox", neox),
]
