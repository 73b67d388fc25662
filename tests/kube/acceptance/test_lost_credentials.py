"""A server whose rights are taken away, or whose token is taken back, that of its kubeconfig or one that a program gave, while jobs run:
users are told in a sentence, the cluster is asked seldom, and when the server has its rights again all goes on by itself, with nothing
lost of what ended meanwhile."""

from __future__ import annotations

import datetime
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kube.acceptance.guarded import BACK_S, EVERYTHING, TOLD_S, GuardedServer, guarded_server
from tests.kube.acceptance.real_plane import RealPlane, make_account, run, write_kubeconfig

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
OWN_REQUESTS, MOST_A_SECOND = 200, 10.0
"""Requests while they are refused: those that this test's own commands cost, with room, and all others in a second."""
RUNS = 20
"""Of the program that gives credentials, and one a second besides: each part of the server starts it every five seconds at most."""
MAX_MIB = 60
"""By which the server may grow meanwhile."""


class TokenPlugin:
    """A program as a kubeconfig names it under `exec`: it gives the token of the last login, and notes each run."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._credential, self._runs, self.program = directory / "credential", directory / "runs", directory / "log-in"
        self.program.write_text(f"#!/bin/sh\necho run >> {self._runs}\ncat {self._credential}\n")
        self.program.chmod(0o700)

    @property
    def user(self) -> dict[str, Any]:
        """As the kubeconfig has it."""
        version = "client.authentication.k8s.io/v1"
        return {"exec": {"apiVersion": version, "command": str(self.program), "interactiveMode": "Never"}}

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines())

    def write_token(self, token: str) -> None:
        content = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": token},
        }
        written = self._credential.with_name("written")
        written.touch(mode=0o600)
        written.write_text(json.dumps(content))
        written.replace(self._credential)


@pytest.fixture(scope="module")
def plugin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenPlugin | None:
    """`request.param`: what the server's kubeconfig has, a `token` or a `program` that gives one."""
    return TokenPlugin(tmp_path_factory.mktemp("plugin") / "plugin") if request.param == "program" else None


@pytest.fixture(scope="module")
def world(
    plugin: TokenPlugin | None, plane: RealPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GuardedServer]:
    account, home = "guard-program" if plugin else "guard-token", tmp_path_factory.mktemp("guarded")
    kubeconfig = run(make_account(plane, account, EVERYTHING))
    if plugin is not None:
        plugin.write_token(json.loads(kubeconfig.read_text())["users"][0]["user"]["token"])
        write_kubeconfig(plane, account, plugin.user)
    with guarded_server(plane, home, account, kubeconfig, plugin.write_token if plugin else None) as made:
        yield made


LOSSES: dict[str, tuple[Callable[[GuardedServer], None], Callable[[GuardedServer], None], str]] = {
    "rights": (
        GuardedServer.take_binding,
        GuardedServer.give_binding,
        'is forbidden: User "system:serviceaccount:default:guard-token"',
    ),
    "token": (
        GuardedServer.take_token,
        GuardedServer.give_token,
        "the cluster does not accept the credentials (Unauthorized): write new",
    ),
    "login": (GuardedServer.take_token, GuardedServer.give_token, "gives them: log in with it again"),
}
"""How they are taken, how they are given again, and what who submits is told meanwhile."""


@pytest.mark.parametrize(
    ("plugin", "loss"),
    [("token", "rights"), ("token", "token"), ("program", "login")],
    indirect=["plugin"],
    scope="module",
)
def test_all_goes_on_when_the_rights_are_back(plugin: TokenPlugin | None, world: GuardedServer, loss: str) -> None:
    take, give, sentence = LOSSES[loss]
    long, late, next_one = f"{loss}-long", f"{loss}-late", f"{loss}-next"
    for job in (long, late):
        assert "submitted" in world.submit(job)
        world.await_bound(job)
    world.write_log(long)
    world.run(long, "running")
    world.served.until(lambda: world.is_said(long), "the log of a running job is shown")
    had, marks, runs = world.memory(), len(world.log()), plugin.runs if plugin else 0
    take(world)
    try:
        names = itertools.count()
        world.served.until(
            lambda: sentence in world.submit(f"{loss}-{next(names)}"), "who submits is told", TOLD_S, every=1.0
        )
        began = time.monotonic()
        since = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        asked_before = world.asked(since)
        world.write_log(late)
        world.run(late, "running")
        for job in (long, late):
            world.run(job, "terminated")
        assert long in world.served.run("rowlock", "list", "-p", world.project), "lists are what was known"
        status = world.served.run("rowlock", "status")
        assert "Scheduler:   not known:" in status and sentence in status
        world.await_told("logs are not kept in the archive while the cluster refuses them", marks)
        world.await_told("leads no longer", marks)
        seconds, asked = time.monotonic() - began, world.asked(since) - asked_before
    finally:
        give(world)
        back = time.monotonic()
    print(f"{loss}: {asked:.0f} requests in {seconds:.1f} s")
    if plugin is not None:
        print(f"{loss}: the program ran {plugin.runs - runs} times")
        assert 0 < plugin.runs - runs < RUNS + seconds, "it may ask a person, or a service far away"
    assert asked < OWN_REQUESTS + MOST_A_SECOND * seconds
    world.served.until(lambda: "submitted" in world.submit(next_one), "submits are accepted again", BACK_S)
    world.await_bound(next_one)
    print(f"{loss}: a new job has nodes {time.monotonic() - back:.1f} s after they were back")
    for job in (long, late):
        world.served.run("rowlock", "wait", job, "-p", world.project, "--timeout", f"{BACK_S:.0f}s")
        world.served.run("rowlock", "delete", job, "-p", world.project)
        world.await_kept(job)
    history = world.served.run("rowlock", "history", "-p", world.project, "--limit", "1000")
    assert sum(line.startswith((long, late)) and "Completed" in line for line in history.splitlines()) == 2, history
    assert world.memory() - had < MAX_MIB
