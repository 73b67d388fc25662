"""The terminal of a rank through the lives of its program, told by a server that shows each state once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from rowlock.cli import client
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.run import console
from rowlock.cli.run.console import TERMINAL, Console
from rowlock.cli.streams import exec_commands

RUNS, ENDED, SUSPENDED, GONE = "runs", "ended", "suspended", "gone"


class Server:
    """Shows one state after another: each time that somebody would wait, or that a session is over, the next one."""

    def __init__(self, *states: tuple[str, int]) -> None:
        self.states = list(states)

    def pass_time(self, _: float = 0) -> None:
        if len(self.states) > 1:
            self.states.pop(0)

    def get(self, path: str, **_: Any) -> dict[str, Any]:
        state, restarts = self.states[0]
        if state == GONE:
            raise client.StatusError(404, "there is no such job", None)
        if not path.endswith("/pods"):
            phase = {RUNS: "Running", ENDED: "Failed", SUSPENDED: "Stopped"}[state]
            return {"name": "job", "namespace": "ns", "phase": phase}
        pod = {
            "rank": "rank 1", "name": "job-worker-0", "id": "uid", "restarts": restarts,
            "k8sPhase": "Running" if state == RUNS else "Failed", "completedAt": None if state == RUNS else "then",
            "containers": [{"startedAt": "then"}],
        }  # fmt: skip
        return {"pods": [] if state == SUSPENDED else [pod]}


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server, Callable[[], int]], bool]:
    """Gives rank 1 the terminal, and answers what `converse` does. Each session is a call of the function."""

    def converse(server: Server, session: Callable[[], int]) -> bool:
        monkeypatch.setattr(client, "connect", lambda _: server)
        monkeypatch.setattr(console, "WebSocket", lambda *_: None)
        monkeypatch.setattr(exec_commands, "run_session", lambda *_, **__: session())
        monkeypatch.setattr(time, "sleep", server.pass_time)
        line = CommandLine("rowlock", "run", [])
        line.set_values(data_dir="", project="")
        return Console(TERMINAL, 1).converse(line, "id")

    return converse


def refuse() -> int:
    raise CommandError('unable to upgrade connection: container not found ("pytorch")')


def test_a_program_that_ended_before_the_terminal_reached_it(
    connect: Callable[[Server, Callable[[], int]], bool],
) -> None:
    """The kubelet knows the end before the pod's status shows it."""
    assert not connect(Server((RUNS, 0), (RUNS, 0), (ENDED, 0)), refuse)


def test_a_refusal_of_a_program_that_runs_is_an_error(
    connect: Callable[[Server, Callable[[], int]], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_LAST_START_S", -1)
    monkeypatch.setattr(
        Console, "_wait_for_life", lambda self, server, identity, *_: self._current_life(server, identity)
    )
    with pytest.raises(CommandError, match="container not found"):
        connect(Server((RUNS, 0)), refuse)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([(RUNS, 0), (RUNS, 0), (RUNS, 1), (ENDED, 1)], "Rank 1 runs again, on this terminal.\n"),
        (
            [(RUNS, 0), (SUSPENDED, 0), (SUSPENDED, 0), (RUNS, 1), (ENDED, 1)],
            "Job job is suspended; `rowlock resume job` starts it again, on this terminal.\n"
            "Rank 1 runs again, on this terminal.\n",
        ),
    ],
)
def test_each_life_of_the_rank_gets_the_terminal(
    connect: Callable[[Server, Callable[[], int]], bool],
    capsys: pytest.CaptureFixture[str],
    states: list[tuple[str, int]],
    said: str,
) -> None:
    server, sessions = Server(*states), list[int]()

    def session() -> int:
        sessions.append(server.states[0][1])
        server.pass_time()
        return 0

    assert connect(server, session)
    assert sessions == [0, 1]
    assert capsys.readouterr().err == said


def test_a_job_that_is_deleted_ends_the_terminal(connect: Callable[[Server, Callable[[], int]], bool]) -> None:
    server = Server((RUNS, 0), (GONE, 0))

    def session() -> int:
        server.pass_time()
        return 0

    assert connect(server, session)
