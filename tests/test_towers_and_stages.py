"""Two columns that a table has where there is something to tell apart: stages of training, towers of a model."""

import numpy as np
import pandas as pd
import torch

import checkpoints
import probes
from checkpoints.heads import TowerLayer
from probes.measuring.plan import in_order
from probes.measuring.rows import CheckpointValues, RowIndex
from probes.measuring.tables import COLUMNS, joined, mean_over_heads, mean_over_layers, read_table, write_table
from probes.monitor.sinks import CSV
from probes.monitor.sinks.values import means_by_tag
from probes.watch.measured import MonitorRows

ENCODER, DECODER = TowerLayer("encoder", 0), TowerLayer("decoder", 0)


def two_towers(stages=None):
    """Two heads in each of two towers, at steps 1 and 2: the numbers 0 ... 3 and 10 ... 13."""
    blocks = {(layer, "norm", "ov"): (2, 1) for layer in (ENCODER, DECODER)}
    rows = RowIndex("mine", blocks, frozenset(), stages or {})
    return rows, rows.table([CheckpointValues(step, np.arange(4.0) + 10 * (step - 1)) for step in (1, 2)])


def test_heads_of_the_same_number_in_two_towers_stay_apart():
    _, table = two_towers()
    assert list(table.columns) == ["run", "step", "tower", *COLUMNS[2:]]
    assert table["layer"].tolist() == [0] * 8
    assert table["tower"].tolist() == ["encoder", "encoder", "decoder", "decoder"] * 2
    wide = probes.by_head(table, "norm", "ov")
    assert wide.columns.names == ["tower", "layer", "head"]
    assert wide.loc[2, ("decoder", 0, 1)] == 13
    assert mean_over_heads(table)["value"].tolist() == [2.5, 0.5, 12.5, 10.5]
    assert mean_over_layers(table)["tower"].tolist() == ["decoder", "encoder"] * 2
    assert "towers encoder, decoder" in repr(table)
    assert "2 layers, 4 heads" in repr(table)


def test_what_is_logged_and_shown_names_the_tower():
    rows, table = two_towers()
    assert rows.means(CheckpointValues(1, np.arange(4.0))) == {"encoder.ov.norm": 0.5, "decoder.ov.norm": 2.5}
    assert means_by_tag(table)[2] == {"ov/norm/decoder layer 0": 12.5, "ov/norm/encoder layer 0": 10.5}


def test_a_stage_stands_beside_its_steps_and_both_go_into_a_file_and_back(tmp_path):
    _, table = two_towers({1: "stage1", 2: "stage2"})
    assert list(table.columns) == ["run", "step", "stage", "tower", *COLUMNS[2:]]
    assert table["stage"].tolist() == ["stage1"] * 4 + ["stage2"] * 4
    write_table(table, tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "table.parquet"), table)
    assert "stages stage1, stage2" in repr(table)


def test_a_table_with_towers_is_joined_with_one_without():
    _, table = two_towers()
    both = joined([table, table.drop(columns="tower").assign(run="other")], {})
    assert both["tower"].isna().sum() == 8
    assert both["tower"].notna().sum() == 8


def test_a_csv_file_says_the_tower_and_is_read_back(tmp_path):
    _, table = two_towers()
    sink = CSV(tmp_path / "with")
    sink.rows(table.loc[table["step"] == 1])
    sink.close()
    read = MonitorRows(tmp_path / "with" / "probes.csv").table()
    assert read["tower"].tolist() == ["encoder", "encoder", "decoder", "decoder"]
    sink = CSV(tmp_path / "without")
    sink.rows(table.loc[(table["step"] == 1) & (table["tower"] == "encoder")].drop(columns="tower"))
    sink.close()
    assert list(MonitorRows(tmp_path / "without" / "probes.csv").table().columns) == COLUMNS


def test_layers_come_tower_by_tower_and_by_number():
    assert in_order([10, 2, 2]) == [2, 10]
    later = TowerLayer("encoder", 3)
    assert in_order([later, DECODER, ENCODER]) == [ENCODER, later, DECODER]


def test_the_stage_of_an_entry_reaches_the_measured_table(tmp_path):
    with checkpoints.RunWriter(tmp_path / "run", circuits={"w": {"tensors": ["w"], "pattern": "r c -> 1 1 r c"}}) as w:
        for step in (1, 2):
            w.save(step, {"w": torch.randn(4, 4, generator=torch.Generator().manual_seed(step))})
    run = checkpoints.open_run(tmp_path / "run")
    assert "stage" not in probes.measure(run, probes="norm").columns
    for entry, stage in zip(run.entries, ("a", "b"), strict=True):
        object.__setattr__(entry, "stage", stage)
    assert probes.measure(run, probes="norm")["stage"].tolist() == ["a", "b"]
    assert probes.measure(run, probes="norm", resume_dir=tmp_path / "parts")["stage"].tolist() == ["a", "b"]
