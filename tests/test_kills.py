"""A few kills of what writes without much ado; `make kills` makes fifty each, of the commands as well."""

from pathlib import Path

import pytest

from tests.kills.campaign import Campaign, run
from tests.kills.campaigns import CAMPAIGNS


@pytest.mark.parametrize("name", ["RunWriter", "sink CSV", "sink RunDirectory", "sink Parquet"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_killed_at_random_moments_it_goes_on_to_the_uninterrupted_result(name, tmp_path):
    outcome = run(CAMPAIGNS[name], tmp_path, kills=4)
    assert outcome.wrong == ()
    assert outcome.kills == 4


def _half(folder: Path) -> None:
    import time

    if not (folder / "begun").exists():
        (folder / "begun").touch()
        time.sleep(0.5)
        (folder / "result").write_text("whole")


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_what_does_not_go_on_is_found_out(tmp_path):
    """The check of the check."""
    lost = Campaign(_half, lambda folder: [file.name for file in sorted(folder.iterdir())])
    assert "['begun'] instead of ['begun', 'result']" in run(lost, tmp_path, kills=3).wrong[0]
