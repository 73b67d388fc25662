"""The short part of the corpus, on a live cluster. `make verdicts` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.corpus import RIGHT, WRONG, read_corpus
from tests.diagnosis.verdicts import format_result, start_cluster, try_programs
from tests.end_to_end.cluster import lent

SIDE_BY_SIDE = 4


@pytest.mark.examples
@pytest.mark.timeout(900)
def test_the_short_part_of_the_corpus_is_right(tmp_path: Path) -> None:
    """A machine that is too busy may leave a program no time to come to its point: what was not right is tried again, alone. An answer
    that blames somebody wrongly has no second try."""
    with lent(tmp_path) as cluster:
        start_cluster(cluster)
        results = list(try_programs(cluster, [p for p in read_corpus() if p.short], SIDE_BY_SIDE))
        print(*map(format_result, results), sep="\n")
        assert not [format_result(result) for result in results if result.outcome.word == WRONG]
        again = try_programs(cluster, [each.program for each in results if each.outcome.word != RIGHT], 1)
        assert not [format_result(result) for result in again if result.outcome.word != RIGHT]
