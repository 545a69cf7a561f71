"""A hub repository: one revision per step (`step1000`), or the numbered files of older TransformerLens repositories.

Such a repository (`NeelNanda/Attn_Only_2L512W_C4_Code`, say) holds `config.json` with TransformerLens' own names
(n_heads, d_head, attn_only, shortformer_pos ...), the final weights, and `checkpoints/*_NUMBER.pth` on its main
branch. TransformerLens itself reads it so (`transformer_lens/tools/model_registry/checkpoints.py`, `tl_legacy.py`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from checkpoints.files import Checkpoint, WeightsError
from checkpoints.files.by_name import FILE_SUFFIXES, open_by_name
from checkpoints.files.checkpoint import abridged
from checkpoints.files.distributed import SUFFIX as DISTRIBUTED
from checkpoints.files.in_folder import BESIDE_WEIGHTS, in_folder
from checkpoints.files.torch_file import SUFFIXES
from checkpoints.hub import Hub
from checkpoints.run import Entry, Run
from checkpoints.sources.folder import agreed, parsed_config
from checkpoints.sources.sequence import NamedRun, matching, run_in_names
from checkpoints.sources.step_folders import left_out, unit_notices
from checkpoints.sources.transformer_lens import NUMBERED, unit_of_numbers


def find(repository: str, pattern: str, hub: Hub | None) -> Run:
    """The run in a repository: revisions whose names match the pattern and carry a step; else files that do."""
    hub = hub or Hub()
    revisions = hub.revisions(repository)

    def call(revisions: str) -> str:
        return f'open_run("hub:{repository}", revisions="{revisions.replace("{step}", "*")}")'

    # the branch that everybody works on counts nothing, whatever its name
    names = [name for name in matching(revisions, pattern) if name not in ("main", "master")]
    try:
        found = run_in_names(names, call)
    except ValueError as error:
        raise ValueError(f"hub:{repository}: {error}") from None
    return (
        _revisions(hub, repository, revisions, found) if found.placed else _files(hub, repository, revisions, pattern)
    )


def _revisions(hub: Hub, repository: str, revisions: Mapping[str, str], found: NamedRun) -> Run:
    """The run of these revisions."""
    entries = [
        Entry(
            one.step,
            f"hub:{repository}@{one.name}",
            partial(open_revision, hub, repository, one.name, revisions[one.name]),
            version=revisions[one.name],
            content=partial(content_hashes, hub, repository, revisions[one.name]),
            stage=one.stage,
            stage_step=one.stage_step,
            tokens=one.tokens,
        )
        for one in found.placed
    ]
    first, last = (read_config(hub, repository, revisions[found.placed[end].name]) for end in (0, -1))
    config, differences = agreed(last, [first])
    return Run(
        f"hub:{repository}",
        repository,
        entries,
        config.get("model_type", "unknown"),
        config,
        step_unit=found.unit,
        notices=(*unit_notices(repository, found.unit), *found.notices, *left_out(found.left_out), *differences),
    )


def _files(hub: Hub, repository: str, revisions: Mapping[str, str], pattern: str) -> Run:
    """The run of the numbered files on the main branch."""
    commit = revisions.get("main")
    files = hub.files(repository, commit) if commit else {}
    found = sorted((int(match[1]), path) for path in files if (match := NUMBERED.fullmatch(path)))
    if not commit or not found:
        raise ValueError(
            f"hub:{repository} has no revision with a step that matches {pattern!r}, and no checkpoints/*_1000.pth: "
            f"its revisions are {abridged(sorted(revisions))}"
        )
    entries = [
        Entry(
            number,
            f"hub:{repository}/{path}",
            partial(_open_file, hub, repository, commit, path),
            version=commit,
            content=partial(content_hashes, hub, repository, commit, path),
        )
        for number, path in found
    ]
    unit, notices = unit_of_numbers(repository, [path for _, path in found], found[-1][0])
    others = tuple(
        path for path in files if path.endswith((".safetensors", *SUFFIXES)) and not NUMBERED.fullmatch(path)
    )
    return Run(
        f"hub:{repository}",
        repository,
        entries,
        "transformer-lens",
        read_config(hub, repository, commit),
        step_unit=unit,
        notices=(*notices, *left_out(others)),
    )


def content_hashes(hub: Hub, repository: str, commit: str, path: str | None = None) -> dict[str, str]:
    """By file of weights of a commit, the hash that the hub lists; of the safetensors alone where there are both.

    Where none lies at the top, those in folders below: a checkpoint of torch.distributed, of DeepSpeed or Megatron.
    """
    files = hub.files(repository, commit)
    kinds = (*FILE_SUFFIXES, DISTRIBUTED)
    weights = [name for name in files if name.endswith(kinds) and not BESIDE_WEIGHTS.search(name)]
    weights = [path] if path else [name for name in weights if "/" not in name] or weights
    safe = [name for name in weights if name.endswith(".safetensors")]
    return {name: files[name].hash for name in safe or weights}


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
    checkpoint = open_by_name(path, source)
    checkpoint.is_remote = True
    return checkpoint


def read_config(hub: Hub, repository: str, commit: str) -> dict[str, Any]:
    """config.json of a commit, {} if there is none."""
    file = hub.files(repository, commit).get("config.json")
    if file is None:
        return {}
    return parsed_config(bytes(hub.read(repository, commit, file, 0, file.size)), f"hub:{repository}/config.json")
