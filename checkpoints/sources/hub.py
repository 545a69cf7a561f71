"""A hub repository: one revision per step (`step1000`), or the numbered files of older TransformerLens repositories."""

from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from checkpoints.files import Checkpoint, WeightsError
from checkpoints.files.checkpoint import abridged
from checkpoints.files.in_folder import in_folder
from checkpoints.files.safetensors_file import SafetensorsFile
from checkpoints.files.torch_file import TorchFile
from checkpoints.hub import Hub
from checkpoints.run import Entry, Run
from checkpoints.sources.folder import parsed_config
from checkpoints.sources.step_folders import step_in
from checkpoints.sources.transformer_lens import NUMBERED


def find(repository: str, pattern: str, hub: Hub | None) -> Run:
    """The run in a repository: revisions whose names match the pattern and carry a step; else files that do."""
    hub = hub or Hub()
    revisions = hub.revisions(repository)
    matching = [name for name in revisions if fnmatchcase(name, pattern)]
    steps = sorted((step, name) for name in matching if (step := step_in(name)) is not None)
    if steps:
        entries = [
            Entry(
                step,
                f"hub:{repository}@{name}",
                partial(open_revision, hub, repository, name, revisions[name]),
                version=revisions[name],
            )
            for step, name in steps
        ]
        config = read_config(hub, repository, revisions[steps[-1][1]])
        return Run(f"hub:{repository}", repository, entries, config.get("model_type", "unknown"), config)
    return _numbered_files(hub, repository, revisions, pattern)


def _numbered_files(hub: Hub, repository: str, revisions: dict[str, str], pattern: str) -> Run:
    commit = revisions.get("main")
    files = hub.files(repository, commit) if commit else {}
    found = sorted((int(match[1]), path) for path in files if (match := NUMBERED.fullmatch(path)))
    if not commit or not found:
        raise ValueError(
            f"hub:{repository} has no revision with a step that matches {pattern!r}, and no checkpoints/*_1000.pth: "
            f"its revisions are {abridged(sorted(revisions))}"
        )
    entries = [
        Entry(number, f"hub:{repository}/{path}", partial(_open_file, hub, repository, commit, path), version=commit)
        for number, path in found
    ]
    return Run(f"hub:{repository}", repository, entries, "transformer-lens", read_config(hub, repository, commit))


def open_revision(hub: Hub, repository: str, revision: str, commit: str) -> Checkpoint:
    """The checkpoint at one revision."""
    label = f"hub:{repository}@{revision}"
    files = hub.files(repository, commit)

    def read(name: str) -> bytes:
        return bytes(hub.read(repository, commit, files[name], 0, files[name].size))

    checkpoint = in_folder(sorted(files), label, read, partial(_open_file, hub, repository, commit))
    if checkpoint is None:
        raise WeightsError(f"{label} holds no weights: {abridged(sorted(files))}")
    checkpoint.label, checkpoint.is_remote = label, True
    return checkpoint


def _open_file(hub: Hub, repository: str, commit: str, path: str) -> Checkpoint:
    source = hub.open(repository, commit, hub.files(repository, commit)[path])
    if path.endswith(".safetensors"):
        return SafetensorsFile(source)
    checkpoint = TorchFile(source.whole())
    checkpoint.label = f"hub:{repository}@{commit[:8]}/{path}"
    return checkpoint


def read_config(hub: Hub, repository: str, commit: str) -> dict[str, Any]:
    """config.json of a commit, {} if there is none."""
    file = hub.files(repository, commit).get("config.json")
    if file is None:
        return {}
    return parsed_config(bytes(hub.read(repository, commit, file, 0, file.size)), f"hub:{repository}/config.json")
