"""What `rowlock run` says of a submit that the server refuses."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from tests.rest.conftest import served as served
from tests.rest.served import Served

from rowlock.cli.client import StatusError
from rowlock.cli.run import checkpoints, command


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ("AlreadyExists", "there is a job c3 in project default already: replace it with --replace"),
        ("Conflict", "c3 cannot run now: c2 writes its checkpoints there"),
        (None, "c3 cannot run now: c2 writes its checkpoints there"),
    ],
)
def test_a_conflict_is_a_taken_name_only_where_the_server_says_so(
    served: Served, monkeypatch: pytest.MonkeyPatch, details: str | None, said: str
) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        body = {"details": details} if details else "a proxy's page"
        raise StatusError(409, "c3 cannot run now: c2 writes its checkpoints there", body)

    monkeypatch.setattr(command, "send_submit", refuse)
    code, _, err = served.run("rowlock run --name c3 -- true")
    assert code == 1 and said in err


def test_where_a_job_goes_on_is_said_when_it_is_submitted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "resume_from", lambda *_: "It goes on from there.")
    assert served.run("rowlock run -d --clean-env --name c4 -- true")[2].splitlines()[:2] == [
        "Job c4 submitted to project default: 1 pod.", "It goes on from there.",
    ]  # fmt: skip
    assert "It goes on" not in served.run("rowlock run -d --clean-env --name c4 -- true")[2]
