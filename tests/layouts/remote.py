"""The same on servers: revisions of a hub's repository, a bucket, a web server, all on loopback."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from checkpoints.hub import Hub
from checkpoints.store import Store
from tests.hub_server import HubServer, serving
from tests.layouts.layout import Layout, State, config_into, torch_saved, weights
from tests.s3_server import s3_serving, web_serving

Served = Iterator[tuple[str, Mapping[str, Any]]]


def files_below(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@contextmanager
def on_a_hub(folder: Path) -> Served:
    """Every folder is a revision, beside main."""
    revisions = {place.name: files_below(place) for place in sorted(folder.iterdir())}
    with serving(HubServer("somebody/small", {"main": {"README.md": b"hello"}, **revisions})) as address:
        yield "hub:somebody/small", {"hub": Hub(address, cache=folder.with_name(folder.name + "-cache"))}


@contextmanager
def on_the_web(folder: Path) -> Served:
    with web_serving(folder) as (address, _):
        yield f"{address}/", {"store": Store(cache=folder.with_name(folder.name + "-cache"))}


@contextmanager
def in_a_bucket(folder: Path) -> Served:
    import s3fs

    with s3_serving() as (address, _):
        bucket = s3fs.S3FileSystem(endpoint_url=address, skip_instance_cache=True)
        bucket.mkdir("bucket")
        for name, content in files_below(folder).items():
            bucket.pipe_file(f"bucket/run/{name}", content)
        store = Store(options={"endpoint_url": address}, cache=folder.with_name(folder.name + "-cache"), wait=0.001)
        yield "s3://bucket/run", {"store": store}


def revisions(*names: str, bin: bool = False, beside: tuple[str, ...] = ()):
    """Folders with a config and weights; the truth is by their place: 10, 20, 25."""

    def save(folder: Path) -> Mapping[int, State]:
        for name in (*names, *beside):
            config_into(folder / name)
            if bin:
                torch.save(weights(len(name)), folder / name / "pytorch_model.bin")
            else:
                save_file(weights(len(name)), folder / name / "model.safetensors")
        return dict(zip((10, 20, 25), (weights(len(name)) for name in names), strict=False))

    return save


STAGES = ("stage1-step10-tokens1B", "stage1-step20-tokens20B", "stage2-ingredient1-step5", "stage2-ingredient2-step5-x")
ALONE = {"config": {}}
LAYOUTS = [
    Layout(
        "hub: revisions step10, step20, experiment", "safetensors, a hub on loopback",
        revisions("step10", "step20", beside=("experiment",)), says="experiment", opening=ALONE, serve=on_a_hub,
    ),
    Layout(
        "hub: revisions of pytorch_model.bin", "torch.save, a hub on loopback",
        revisions("step10", "step20", bin=True), opening=ALONE, serve=on_a_hub,
    ),
    Layout(
        "hub: stage1-step10, stage2-ingredient1-step5, stage2-ingredient2-step5", "safetensors, a hub on loopback",
        revisions(*STAGES), says="counts anew, 20 is added", serve=on_a_hub,
        opening={"config": {}, "revisions": "stage1-*,stage2-ingredient1-*"},
    ),
    Layout(
        "s3://bucket/run/step10.pt", "torch.save, moto's S3 server on loopback",
        torch_saved("step{}.pt", 10, 20), serve=in_a_bucket,
    ),
    Layout(
        "http://host/run/step10/model.safetensors", "safetensors, a web server on loopback",
        revisions("step10", "step20"), opening=ALONE, serve=on_the_web,
    ),
]  # fmt: skip
