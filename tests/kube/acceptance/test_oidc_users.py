"""People of an organisation's identity provider, which the cluster's API server trusts (OIDC): their tokens and groups count at our
server as at the cluster's own, by REST and by command line, and end when they say."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.authentication.oidc.provider import CLIENT, Provider, running_provider
from tests.conformance.subjects import RUNNING, real_cluster, real_cluster_missing
from tests.kube.acceptance.guarded import BACK_S, GuardedServer, guarded_server
from tests.kube.acceptance.real_plane import RealPlane
from tests.kube.chaos.api_server import ApiServer

from rowlock.errors import ApiError

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
ANA, GROUP = "lab:ana@lab.example", "lab:team"
"""As the cluster names her and her group: with the prefix that its administrator chose."""
SHORT_S = 25.0
"""Seconds for which a short token counts."""


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as made:
        made.person = {"sub": "1", "email": "ana@lab.example", "groups": ["team"]}
        yield made


@pytest.fixture(scope="module")
def world(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """Over a control plane whose API server trusts the provider; the group may work in the project."""
    if os.environ.get(RUNNING):
        pytest.skip(f"the API server of {RUNNING} trusts its own provider: unset it")
    if missing := real_cluster_missing():
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp("plane")
    trust = {
        "issuer-url": provider.url, "client-id": CLIENT, "ca-file": provider.ca_file, "username-claim": "email",
        "username-prefix": "lab:", "groups-claim": "groups", "groups-prefix": "lab:",
    }  # fmt: skip
    with real_cluster(directory, "--crds", "--audit") as kubeconfig, ApiServer(directory) as server:
        server.restart(*(f"--oidc-{name}={value}" for name, value in trust.items()))
        plane = RealPlane(directory, kubeconfig, server)
        home = tmp_path_factory.mktemp("home")
        await_trust(plane, provider)
        with guarded_server(plane, home, "oidc") as made:
            made.let_work({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}, "team")
            assert "submitted" in made.submit("of-the-owner")
            yield made


def review(plane: RealPlane, token: str) -> dict[str, Any]:
    """What the API server itself says of a token."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status: dict[str, Any] = plane.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)["status"]
    return status


def await_trust(plane: RealPlane, provider: Provider) -> None:
    """Until the API server answers again, and has read the provider's keys."""
    deadline, said = time.monotonic() + BACK_S, "nothing"
    while time.monotonic() < deadline:
        try:
            status = review(plane, provider.token())
            if status.get("authenticated"):
                assert status["user"]["username"] == ANA and GROUP in status["user"]["groups"], status
                return
            said = str(status)
        except ApiError as error:
            said = error.message
        time.sleep(0.2)
    pytest.fail(f"the API server does not know the provider's tokens: {said}")


def test_a_member_of_the_group_works_as_herself_and_others_do_not(
    world: GuardedServer, provider: Provider, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ana = provider.token()
    world.served.until(lambda: world.workloads_of(ana) == ["of-the-owner"], "the rights of her group are followed")
    answer = world.submit_as(ana, "of-ana")
    assert answer.status_code == 202, answer.text
    world.await_bound("of-ana")
    lines = (world.plane.directory / "audit.jsonl").read_text().splitlines(keepends=True)
    made = [e for e in map(json.loads, (one for one in lines if one.endswith("\n")))
            if e["verb"] == "create" and e["objectRef"].get("resource") == "pytorchjobs" and e["objectRef"].get("name") == "of-ana"]  # fmt: skip
    assert {one["user"]["username"] for one in made} == {ANA}, made

    commands = world.log_in(tmp_path_factory.mktemp("ana"), ANA, ana)
    said = commands.run("rowlock", "list", "-p", world.project)
    assert "of-ana" in said and "of-the-owner" in said, said
    assert "deleted" in commands.run("runai", "delete", "job", "of-ana", "-p", world.project).lower()

    bob = provider.token(sub="2", email="bob@lab.example", groups=["others"])
    assert world.workloads_of(bob) == []
    refused = world.submit_as(bob, "of-bob")
    assert refused.status_code == 400 and "was not found" in refused.json()["message"], refused.text
    for wrong in (provider.token(aud="another"), provider.token(iss="https://127.0.0.1:1"), ana[:-4] + "AAAA"):
        assert world.ask_as(wrong, "GET", "/api/v1/workloads").status_code == 401


def test_a_token_ends_when_it_says(world: GuardedServer, provider: Provider) -> None:
    ends = int(time.time() + SHORT_S)
    short = provider.token(exp=ends)
    world.served.until(lambda: "of-the-owner" in world.workloads_of(short), "the rights of her group are followed")
    answers = list[httpx.Response]()

    def is_refused() -> bool:
        answers.append(world.ask_as(short, "GET", "/api/v1/workloads"))
        return answers[-1].status_code != 200

    world.served.until(is_refused, "it has ended", SHORT_S + 30.0)
    print(f"refused {time.time() - ends:.1f} s after its end")
    assert time.time() > ends - 1.0
    assert answers[-1].status_code == 401 and "sign in again with a new one" in answers[-1].json()["message"]
    assert "of-the-owner" in world.workloads_of(provider.token()), "a new one counts at once"
