"""Every figure panel and numbered result of a paper has a row of verdicts or a reason, and the tables say so."""

import pytest

from analyses.registry import PAPERS
from analyses.tools.coverage import (
    Place,
    committed_rows,
    coverage_file,
    covered,
    has_places,
    named_in,
    places_of,
    table,
    unlisted,
)
from analyses.tools.verdicts import CANNOT, HOLDS, Verdict

LISTED = [number for number in PAPERS if has_places(number)]


@pytest.mark.parametrize("paper", LISTED)
def test_every_place_has_a_row_or_a_reason_and_the_table_is_the_generated_one(paper):
    places, rows = places_of(paper), committed_rows(paper)
    found = covered(places, rows)
    assert [one.place.name for one in found if not one.rows and not one.place.why_not] == []
    assert [one.place.name for one in found if one.rows and one.place.why_not] == [], "a row and a reason for none"
    assert unlisted(places, rows) == set()
    assert len({place.name for place in places}) == len(places)
    assert coverage_file(paper).read_text() == table(paper, found), "run: python -m analyses.tools.coverage"


def test_rows_name_places_in_words_of_a_reader():
    for printed, expected in {
        "section 3, Figs 3B, 7A": ["Fig 3B", "Fig 7A"],
        "Eqs A111-A114, Fig 6B, k = 4": ["Fig 6B", "Eq A111", "Eq A112", "Eq A113", "Eq A114"],
        "Figs 2a-c and 5": ["Fig 2a", "Fig 2b", "Fig 2c", "Fig 5"],
        "Fig 2B, A.12": ["Fig 2B"],  # the other is a section
        "below Eq 4.11, Theorems 4.1 and 4.5": ["Eq 4.11", "Theorem 4.1", "Theorem 4.5"],
        "Lemmas D.1, D.2; Corollaries 1, 2": ["Lemma D.1", "Lemma D.2", "Corollary 1", "Corollary 2"],
        "section 4 (Olsson et al.)": [],
    }.items():
        assert named_in(printed) == expected
    with pytest.raises(ValueError, match="no range that is understood"):
        named_in("Figs 2-b")


def test_what_has_no_row_and_what_no_list_has_are_told():
    places = [Place("Fig 1A", "a"), Place("Fig 1B", "b"), Place("Eq 2", "c", why_not="a definition")]
    rows = [("page", Verdict("it is", "Fig 1A", "", HOLDS, "")), ("page", Verdict("it was", "Eq 7", "", CANNOT, "why"))]
    found = covered(places, rows)
    assert [len(one.rows) for one in found] == [1, 0, 0]
    assert unlisted(places, rows) == {"Eq 7"}
    assert unlisted(places, [("page", Verdict("whole", "Fig 1", "", HOLDS, ""))]) == set()
    told = table("000", found)
    assert "Of 3 figure panels and numbered results 1 are judged" in told
    assert "| Fig 1B | b | none | **no row yet** |" in told
    assert "| Eq 2 | c | none | no row: a definition |" in told
