"""KAI's own test tables, one test each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.evidence import BESIDE
from tests.scheduling import kai_tables

FILE = BESIDE / "data" / "kai-scheduling-tables.json"


def cases() -> list[dict[str, Any]]:
    return list(json.loads(FILE.read_text())["cases"]) if FILE.is_file() else []


@pytest.mark.skipif(not FILE.is_file(), reason="KAI's test tables are not beside this repository")
@pytest.mark.parametrize("table", cases(), ids=kai_tables.table_name)
def test_table(table: dict[str, Any]) -> None:
    verdict = kai_tables.check_table(table)
    assert verdict.outcome == "ok", verdict


def test_the_tables_are_there() -> None:
    if not FILE.is_file():
        pytest.skip("KAI's test tables (shared/data/kai-scheduling-tables.json) are not beside this repository")
    assert len(cases()) >= 140


def test_one_line_per_table_and_a_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {
        "Name": "one pod on one card",
        "Jobs": [{"Name": "j", "QueueName": "q", "Priority": 50, "RequiredGPUsPerTask": 1, "Tasks": [{}]}],
        "Nodes": {"n": {"GPUs": 1}},
        "Queues": [{"Name": "q", "DeservedGPUs": 1}],
        "JobExpectedResults": {"j": {"Status": "Binding", "NodeName": "n"}},
        "_file": "pkg/scheduler/actions/allocate/x_test.go",
    }
    wrong = {**table, "Name": "wrong", "JobExpectedResults": {"j": {"Status": "Pending"}}}
    outside = {**table, "Name": "outside", "Topologies": [{"Name": "t"}]}
    path = tmp_path / "tables.json"
    path.write_text(json.dumps({"cases": [table, wrong, outside]}))
    assert kai_tables.main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok one pod on one card",
        "FAIL wrong: j-0 is Binding on n, expected Pending",
        "skip outside: topology is outside our fence",
        "1 of 3 passed, 1 failed, 1 not applicable",
    ]


def test_a_missing_file_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert kai_tables.main(["no-such.json"]) == 2
    assert "no such file" in capsys.readouterr().err
