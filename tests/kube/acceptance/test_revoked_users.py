"""A user's own token is taken back while he works: by command line, by REST, in the browser. He is refused in one sentence within the
minute for which the cluster's word about a token is kept; what he follows ends; nobody else notices."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.end_to_end.cluster import Cluster
from tests.kube.acceptance.guarded import TOLD_S, GuardedServer, guarded_server
from tests.kube.acceptance.real_plane import ACCOUNTS, RealPlane, make_token, run
from tests.ui.conftest import chromium as chromium

from rowlock.kube.users.cluster_users import KNOWN_SECONDS, REVIEW_S

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
BOUND_S = KNOWN_SECONDS + REVIEW_S + 20.0
"""Seconds until all of a user's streams have ended: ten for the API server's own memory, and ten for this machine."""
WHAT_TO_DO = (
    "the cluster does not accept this token: it is wrong, is over or was taken back; sign in again with a new one"
)


@dataclass
class Follower:
    """`rowlock logs -f` of a user."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def is_over(self) -> bool:
        return self.process.poll() is not None


@dataclass
class Person:
    """Somebody with a token of the cluster, and a data directory in which he has logged in with it."""

    name: str
    token: str
    world: GuardedServer
    commands: Cluster
    project: str

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.world.ask_as(self.token, method, path, body)

    def workloads(self) -> list[str]:
        return self.world.workloads_of(self.token)

    def submit(self, job: str) -> httpx.Response:
        return self.world.submit_as(self.token, job, self.project)

    def follow(self, stack: ExitStack, job: str) -> Follower:
        line = ["rowlock", "logs", "-f", job, "-p", self.world.project]
        out = subprocess.PIPE
        process = stack.enter_context(
            subprocess.Popen(line, env=self.commands.env, text=True, stdout=out, stderr=subprocess.STDOUT)
        )
        followed = Follower(process)
        reader = threading.Thread(target=followed.read, daemon=True)
        reader.start()
        stack.callback(reader.join, 30)
        stack.callback(process.kill)
        self.world.served.until(
            lambda: len(followed.lines) >= 2, lambda: f"{self.name} reads the log: {followed.lines}"
        )
        return followed

    def take_token(self) -> None:
        self.world.plane.send("DELETE", f"{ACCOUNTS}/{self.name}")


@pytest.fixture(scope="module")
def world(plane: RealPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    with guarded_server(plane, tmp_path_factory.mktemp("revoked"), "keeper") as made:
        yield made


@pytest.fixture(scope="module")
def job(world: GuardedServer) -> str:
    """It runs, and its log does not end."""
    assert "submitted" in world.submit("long")
    world.await_bound("long")
    world.write_log("long")
    world.kubelet.endless = {"long-master-0", "long-worker-0"}
    world.run("long", "running")
    world.served.until(lambda: "2/2" in world.served.run("rowlock", "list", "-p", world.project), "it runs")
    return "long"


def make_person(world: GuardedServer, home: Path, name: str, project: str = "") -> Person:
    """He may work in that project, or in the one of the job."""
    project = project or world.project

    async def token() -> str:
        async with world.plane.connect() as kube:
            return await make_token(kube, name)

    world.plane.send("POST", ACCOUNTS, {"metadata": {"name": name}})
    world.let_work({"kind": "ServiceAccount", "name": name, "namespace": "default"}, name, project)
    held = run(token())
    return Person(name, held, world, world.log_in(home / name, f"default:{name}", held), project)


def test_who_only_reads_is_refused_within_the_minute_and_nobody_else(
    world: GuardedServer, job: str, tmp_path: Path
) -> None:
    ann, ben = (make_person(world, tmp_path, name) for name in ("revoked-ann", "revoked-ben"))
    world.served.until(lambda: [job] == ann.workloads() == ben.workloads(), "their rights are followed")
    with ExitStack() as stack:
        hers, his = (person.follow(stack, job) for person in (ann, ben))
        ann.take_token()
        began, answers = time.monotonic(), list[httpx.Response]()

        def is_refused() -> bool:
            answers.append(ann.ask("GET", "/api/v1/workloads"))
            return answers[-1].status_code != 200

        world.served.until(is_refused, "ann is refused", BOUND_S)
        refused_s = time.monotonic() - began
        assert all([one["name"] for one in each.json()["workloads"]] == [job] for each in answers[:-1])
        assert answers[-1].status_code == 401 and WHAT_TO_DO in answers[-1].json()["message"], answers[-1].text
        world.served.until(hers.is_over, "what ann follows ends", BOUND_S)
        print(
            f"ann was refused after {refused_s:.1f} s, and what she followed ended after {time.monotonic() - began:.1f} s"
        )
        world.served.until(lambda: WHAT_TO_DO in hers.lines[-1], lambda: f"she is told why: {hers.lines}")
        assert hers.lines[-1].startswith("rowlock: the log ends here: ")
        for line in (("rowlock", "list"), ("rowlock", "logs", "-f", job), ("rowlock", "run", "-d", "--", "true")):
            said = ann.commands.run(*line, "--data-dir", str(ann.commands.data), code=1)
            assert said == (
                "Authentication failed. the token has expired or was ended: log in again with"
                f" `runai login application --client-id default:{ann.name}`\n"
            ), said
        assert ben.workloads() == [job] and not his.is_over(), his.lines
        assert ben.commands.run("rowlock", "list", "-p", world.project).count(job) == 1


def test_the_first_write_that_the_cluster_refuses_ends_it_all(world: GuardedServer, tmp_path: Path) -> None:
    """Before the minute is over in which the cluster's word about the token is kept. Her many jobs are in a project that nobody else sees."""
    world.served.run("rowlock", "project", "create", "of-cat")
    cat = make_person(world, tmp_path, "revoked-cat", "of-cat")
    world.served.until(lambda: "of-cat" in cat.ask("GET", "/api/v1/org-unit/projects").text, "her rights are followed")
    cat.take_token()
    tries = list[httpx.Response]()

    def is_refused() -> bool:
        tries.append(cat.submit(f"of-cat-{len(tries)}"))
        return tries[-1].status_code != 202

    began = time.monotonic()
    world.served.until(is_refused, "her submit is refused", TOLD_S)
    assert time.monotonic() - began < KNOWN_SECONDS
    assert tries[-1].status_code == 401 and WHAT_TO_DO in tries[-1].json()["message"], tries[-1].text
    for method, path in (
        ("GET", "/api/v1/workloads"),
        ("GET", "/api/v1/nodes"),
        ("DELETE", "/api/v1/workloads/distributed/any"),
    ):
        answer = cat.ask(method, path)
        assert answer.status_code == 401 and WHAT_TO_DO in answer.json()["message"], answer.text


def test_a_page_whose_token_was_taken_back_leads_to_the_sign_in_and_back(
    world: GuardedServer, job: str, chromium: Any, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    dan, eve = (make_person(world, tmp_path, name) for name in ("dan", "eve"))
    world.served.until(lambda: job in dan.workloads() and job in eve.workloads(), "their rights are followed")
    url = json.loads((world.served.data / "server.json").read_text())["ui"]
    said, pages = list[str](), list[Any]()
    for person in (dan, eve):
        context = chromium.new_context(reduced_motion="reduce")
        context.set_default_timeout(40_000)
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        page.get_by_label("Token of the cluster").fill(person.token)
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        page.get_by_role("link", name=job, exact=True).click()
        pages.append(page)
    his, hers = pages
    where = his.url
    dan.take_token()
    began = time.monotonic()
    expect(his.get_by_role("alert")).to_contain_text("Your session is over. Sign in", timeout=BOUND_S * 1000)
    print(f"dan's page led to the sign-in after {time.monotonic() - began:.1f} s")
    expect(his.get_by_role("link", name=job, exact=True)).to_have_count(0)
    expect(hers.get_by_text("Live", exact=True)).to_be_visible()
    his.get_by_label("Token of the cluster").fill(dan.token)
    his.get_by_role("button", name="Sign in", exact=True).click()
    expect(his.get_by_role("alert")).to_contain_text("The cluster does not know this token, or it has ended")
    his.get_by_label("Token of the cluster").fill(eve.token)
    his.get_by_role("button", name="Sign in", exact=True).click()
    expect(his.get_by_text("Live", exact=True)).to_be_visible()
    assert his.url == where and not said
    for page in pages:
        page.context.close()
