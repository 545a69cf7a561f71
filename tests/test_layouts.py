"""Every way of laying out checkpoints in docs/layouts.md opens with the steps and the weights that were saved."""

import pytest

from tests.layouts.layout import Judged, judge
from tests.layouts.table import LAYOUTS, PAGE, page

pytestmark = pytest.mark.xdist_group("layouts")  # one worker writes and measures them


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> list[Judged]:
    folder = tmp_path_factory.mktemp("layouts")
    return [judge(layout, folder / str(number)) for number, layout in enumerate(LAYOUTS)]


def test_every_layout_opens_with_its_steps_their_unit_and_its_spectra(judged):
    failures = {one.layout.name: one.failure for one in judged if not one.opens}
    assert not failures


def test_the_committed_table_is_what_comes_out(judged):
    assert PAGE.read_text(encoding="utf-8") == page(judged), "python -m tests.layouts writes it anew"


def test_there_are_more_than_the_35_that_were_asked_for_and_each_has_its_name(judged):
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS) >= 35
