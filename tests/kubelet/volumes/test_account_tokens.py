"""Tokens of service accounts in pods: who gets one, how long one is kept, when there is a new one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowlock.errors import NotFound
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import PodSpec, parse_pod_spec
from rowlock.kubelet.volumes import account_tokens
from rowlock.kubelet.volumes.account_tokens import PodTokens
from rowlock.kubelet.volumes.volumes import may_need_tokens

ADDED = {"name": "kube-api-access-abcde", "projected": {"sources": []}}


def pod(uid: str = "u1", **spec: Any) -> PodSpec:
    made = {
        "serviceAccountName": "robot",
        "containers": [{"name": "main", "image": "host"}],
        "volumes": [ADDED],
        **spec,
    }
    return parse_pod_spec({"metadata": {"name": "p", "namespace": "a", "uid": uid}, "spec": made})


class Source:
    """Numbers its tokens; robot of the namespace a has rights."""

    def __init__(self) -> None:
        self.made, self.loads, self.problem = 0, 0, ""

    def load(self) -> None:
        self.loads += 1

    def request_token(self, pod: PodSpec, audience: str, seconds: int) -> tuple[str, float]:
        if self.problem:
            raise NotFound(self.problem)
        self.made += 1
        return f"{pod.uid} {audience} {self.made}", 1000.0 + seconds

    def has_rights(self, namespace: str, account: str) -> bool:
        return (namespace, account) == ("a", "robot")


class Tokens:
    def __init__(self) -> None:
        self.now, self.source = 1000.0, Source()
        self.tokens = PodTokens(self.source, lambda: self.now, ("10.77.0.1", 6443))


@pytest.fixture
def held() -> Tokens:
    return Tokens()


def test_a_token_is_kept_for_four_fifths_of_its_life(held: Tokens) -> None:
    first = held.tokens.token(pod(), "", 1000)
    held.now += 799
    assert held.tokens.token(pod(), "", 1000) == first
    assert held.tokens.renewable_pods(["u1"]) == set()
    held.now += 1
    assert held.tokens.renewable_pods(["u1"]) == {"u1"}
    assert held.tokens.token(pod(), "", 1000) != first


def test_each_pod_and_audience_has_its_own(held: Tokens) -> None:
    asked = [(pod("u1"), ""), (pod("u2"), ""), (pod("u1"), "vault")]
    assert len({held.tokens.token(one, audience, 1000) for one, audience in asked}) == 3


def test_tokens_go_with_their_pods(held: Tokens) -> None:
    first = held.tokens.token(pod(), "", 1000)
    held.now += 900
    assert held.tokens.renewable_pods([]) == set()
    assert held.tokens.renewable_pods(["u1"]) == set()
    assert held.tokens.token(pod(), "", 1000) != first


@pytest.mark.parametrize(
    ("account", "automount", "wanted"), [("robot", None, True), ("default", None, False), ("default", True, True)]
)
def test_who_can_do_something_with_one_gets_one(
    held: Tokens, account: str, automount: bool | None, wanted: bool
) -> None:
    asked: dict[str, Any] = {} if automount is None else {"automountServiceAccountToken": automount}
    assert held.tokens.are_wanted(pod(serviceAccountName=account, **asked)) is wanted
    held.tokens.address = None
    assert not held.tokens.are_wanted(pod(serviceAccountName=account, **asked))


def test_a_program_with_a_token_is_told_where_the_api_server_is_as_a_kubelet_does(held: Tokens) -> None:
    assert held.tokens.server_variables() == {
        "KUBERNETES_SERVICE_HOST": "10.77.0.1",
        "KUBERNETES_SERVICE_PORT": "6443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
        "KUBERNETES_PORT": "tcp://10.77.0.1:6443",
        "KUBERNETES_PORT_6443_TCP": "tcp://10.77.0.1:6443",
        "KUBERNETES_PORT_6443_TCP_PROTO": "tcp",
        "KUBERNETES_PORT_6443_TCP_PORT": "6443",
        "KUBERNETES_PORT_6443_TCP_ADDR": "10.77.0.1",
    }
    held.tokens.address = None
    assert held.tokens.server_variables() == {}


def test_what_makes_tokens_is_loaded_once_and_for_who_needs_it(held: Tokens) -> None:
    assert not may_need_tokens(pod(), has_token=False)
    assert may_need_tokens(pod(), has_token=True)
    assert may_need_tokens(pod(volumes=[{**ADDED, "name": "mine"}]), has_token=False)
    assert not may_need_tokens(pod(volumes=[{"name": "mine", "emptyDir": {}}]), has_token=True)

    async def load_twice() -> None:
        await held.tokens.load()
        await held.tokens.load()

    asyncio.run(load_twice())
    assert held.source.loads == 1


def test_a_pod_waits_with_a_sentence(held: Tokens) -> None:
    held.source.problem = 'serviceaccounts "robot" not found'
    with pytest.raises(ContainerConfigError, match='failed to fetch token: serviceaccounts "robot" not found'):
        held.tokens.token(pod(), "", 1000)
    with pytest.raises(ContainerConfigError, match="makes no service account tokens"):
        PodTokens(None, lambda: 0.0).token(pod(), "", 1000)
    assert account_tokens.DEFAULT_SECONDS == 3600
