"""What people log is found beside their checkpoints or handed over, by step, and nothing of it is silently mixed."""

import json
import struct
import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from torch.utils.tensorboard import SummaryWriter

from checkpoints import open_run
from checkpoints.sources.metrics.files import read_metrics
from checkpoints.sources.metrics.tensorboard import masked_crc, scalars
from tests.small_gpt2 import state


@pytest.fixture
def folder(tmp_path) -> Path:
    for step in (10, 20):
        torch.save(state(step), tmp_path / f"step{step}.pt")
    return tmp_path


def read(source, **settings) -> tuple[pd.DataFrame, str]:
    """Metrics, and what was said on the way."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        metrics = open_run(source, **settings).metrics
    return metrics, " ".join(str(warning.message) for warning in said)


def test_lightnings_csv_is_found_above_the_folder_of_the_checkpoints(tmp_path):
    logger = CSVLogger(tmp_path)
    for step in range(3):
        logger.log_metrics({"train_loss": 3.0 - step, "epoch": 0}, step=step)
    logger.log_metrics({"val_loss": 0.5, "epoch": 0}, step=2)
    logger.save()
    place = Path(logger.log_dir) / "checkpoints"
    place.mkdir()
    torch.save(state(2), place / "epoch=0-step=2.ckpt")
    for opened in (place, place.parent, tmp_path):
        metrics, said = read(opened)
        assert metrics["train_loss"].tolist() == [3.0, 2.0, 1.0]
        assert metrics.loc[2, "val_loss"] == 0.5
        assert metrics.index.name == "step"
        assert not said


def test_event_files_are_read_as_tensorboard_writes_them(folder):
    with SummaryWriter(str(folder / "runs" / "one")) as writer:
        for step in range(5):
            writer.add_scalar("train/loss", 1.0 / (step + 1), step)
            writer.add_histogram("weights", torch.randn(50), step)
        writer.add_text("notes", "hello", 3)
        writer.add_scalar("train/loss", -2.5, 10**12)
    metrics, said = read(folder)
    assert list(metrics.columns) == ["train/loss"]
    assert metrics.index.tolist() == [0, 1, 2, 3, 4, 10**12]
    assert metrics["train/loss"].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, -2.5])
    assert not said


def record(event: Event) -> bytes:
    content = event.SerializeToString()
    head = struct.pack("<Q", len(content))
    return head + struct.pack("<I", masked_crc(head)) + content + struct.pack("<I", masked_crc(content))


def test_scalars_of_tensorflow_2_and_negative_steps_and_a_file_that_is_being_written(tmp_path):
    def event(step: int, tensor: TensorProto) -> bytes:
        return record(Event(step=step, summary=Summary(value=[Summary.Value(tag="loss", tensor=tensor)])))

    one_float = TensorProto(dtype=1, tensor_content=struct.pack("<f", 0.5))
    content = event(-1, one_float) + event(1, TensorProto(dtype=2, double_val=[0.25]))
    content += event(2, TensorProto(dtype=1, float_val=[1.0, 2.0])) + event(3, one_float)[:-3]
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(content)
    assert list(scalars(file)) == [(-1, "loss", 0.5), (1, "loss", 0.25)]


def test_the_checksum_is_that_of_the_standard_and_a_damaged_event_is_refused(folder):
    assert masked_crc(b"123456789") == (((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    with SummaryWriter(str(folder)) as writer:
        writer.add_scalar("loss", 1.0, 1)
    file = next(folder.glob("*tfevents*"))
    whole = file.read_bytes()
    place = whole.index(b"loss") + 5
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(ValueError, match="checksum of an event does not match"):
        read_metrics(file)
    file.write_bytes(b"x" * 40)
    with pytest.raises(ValueError, match="no event file of TensorBoard, or damaged at byte 0"):
        read_metrics(file)


def test_a_restart_in_event_files_counts_from_where_it_begins(folder):
    for number, steps in enumerate((range(8), range(5, 9))):
        with SummaryWriter(str(folder), filename_suffix=f".{number}") as writer:
            for step in steps:
                writer.add_scalar("loss", number, step * 10)
        for file in folder.glob(f"*.{number}"):
            file.rename(folder / f"events.out.tfevents.{number}")
    metrics, said = read(folder)
    assert metrics["loss"].tolist() == [0] * 5 + [1] * 4
    assert "logs loss again from step 50 on: 3 earlier values are left out" in said


def export(runs: dict[str, dict[int, float]]) -> str:
    """A chart as W&B exports it."""
    steps = sorted({step for values in runs.values() for step in values})
    lines = ['"Step"' + "".join(f',"{r} - loss","{r} - loss__MIN","{r} - loss__MAX"' for r in runs)]
    for step in steps:
        cells = [f'"{values[step]}"' if step in values else '""' for values in runs.values()]
        lines.append(f'"{step}"' + "".join(f",{cell},{cell},{cell}" for cell in cells))
    return "\n".join(lines) + "\n"


def test_segments_of_a_restarted_run_in_an_export_are_joined_and_the_later_word_counts(folder):
    first, second = {s: 1.0 for s in range(0, 100, 10)}, {s: 2.0 for s in range(75, 120, 10)}
    (folder / "wandb_export_2024.csv").write_text(export({"run-b": second, "run-a": first}))
    metrics, said = read(folder)
    assert metrics.index.tolist() == [0, 10, 20, 30, 40, 50, 60, 70, 75, 85, 95, 105, 115]
    assert metrics["loss"].tolist() == [1.0] * 8 + [2.0] * 5
    assert list(metrics.columns) == ["loss"]
    assert "taken up again at step 75; 2 rows" in said


def test_an_export_of_several_runs_side_by_side_is_not_mixed(folder):
    runs = {name: dict.fromkeys(range(0, 100, 10), value) for name, value in (("a", 1.0), ("b", 2.0))}
    (folder / "wandb_export_2024.csv").write_text(export(runs))
    metrics, said = read(folder)
    assert metrics.empty
    assert "holds a, b, side by side and not one after the other" in said
    with pytest.raises(ValueError, match="these are several runs"):
        _ = open_run(folder, metrics=folder / "wandb_export_2024.csv").metrics


def test_several_files_are_segments_in_the_order_given(folder):
    early = pd.DataFrame({"step": [0, 10, 20], "loss": [3.0, 2.0, 1.0]})
    late = pd.DataFrame({"step": [15, 25], "loss": [1.5, 0.5]})
    late.to_csv(folder / "late.csv", index=False)
    metrics, said = read(folder, metrics=[early, folder / "late.csv"])
    assert metrics["loss"].to_dict() == {0: 3.0, 10: 2.0, 15: 1.5, 25: 0.5}
    assert "taken up again at step 15; 1 rows" in said


def test_a_restart_within_one_file_and_columns_that_are_no_numbers(folder):
    rows = [{"global_step": s, "loss": 1.0, "phase": "train", "lr": None} for s in (0, 10, 20, 30)]
    rows += [{"global_step": s, "loss": float("nan") if s == 25 else 2.0} for s in (15, 25)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"global_step": 35, "lo')
    metrics, said = read(folder)
    assert metrics["loss"].dropna().to_dict() == {0: 1.0, 10: 1.0, 15: 2.0}
    assert list(metrics.columns) == ["loss"]
    assert "left out, since they are no numbers: phase" in said
    assert "taken up again at step 15; 2 rows" in said


def test_which_column_is_the_step_is_found_or_said(folder):
    table = pd.DataFrame({"when": [0, 10], "loss": [2.0, 1.0]})
    with pytest.raises(ValueError, match=r"which column is the step\? It has when, loss.*set_index"):
        _ = open_run(folder, metrics=table).metrics
    assert read(folder, metrics=table.set_index("when"))[0]["loss"].to_dict() == {0: 2.0, 10: 1.0}
    for name in ("Step", "_step", "trainer/global_step", "Iteration"):
        assert read(folder, metrics=table.rename(columns={"when": name}))[0].index.tolist() == [0, 10], name
    with pytest.raises(ValueError, match=r"holds 0\.5; whole numbers are expected"):
        _ = open_run(folder, metrics=pd.DataFrame({"step": [0.5], "loss": [1.0]})).metrics
    with pytest.raises(FileNotFoundError, match="does not exist"):
        _ = open_run(folder, metrics="nowhere.csv").metrics
    (folder / "log.txt").write_text("")
    with pytest.raises(ValueError, match=r"has none of the endings \.csv"):
        _ = open_run(folder, metrics=folder / "log.txt").metrics


def test_metrics_of_a_run_of_epochs_are_by_epoch_or_not_at_all(tmp_path):
    for epoch in (0, 1):
        torch.save(state(epoch), tmp_path / f"epoch={epoch}.ckpt")
    by_step = pd.DataFrame({"step": [0, 1, 2, 3], "epoch": [0, 0, 1, 1], "loss": [4.0, 3.0, 2.0, 1.0]})
    by_step.to_csv(tmp_path / "metrics.csv", index=False)
    assert read(tmp_path)[0]["loss"].to_dict() == {0: 3.0, 1: 1.0}
    by_step.drop(columns="epoch").to_csv(tmp_path / "metrics.csv", index=False)
    metrics, said = read(tmp_path)
    assert metrics.empty
    assert "has no column of epochs" in said


def test_of_several_kinds_one_is_taken_and_the_others_are_named(folder):
    table = pd.DataFrame({"step": [0, 10], "loss": [2.0, 1.0]})
    table.to_csv(folder / "metrics.csv", index=False)
    (table * 2).to_csv(folder / "validation.csv", index=False)
    metrics, said = read(folder)
    assert metrics["loss"].tolist() == [2.0, 1.0]
    assert "not read: " in said
    assert "validation.csv" in said
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": 5, "loss": 7.0}]}))
    assert read(folder)[0]["loss"].to_dict() == {5: 7.0}
    assert read(folder, metrics=folder / "validation.csv")[0]["loss"].to_dict() == {0: 4.0, 20: 2.0}
