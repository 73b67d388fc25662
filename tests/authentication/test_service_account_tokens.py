"""Tokens of service accounts: what is in them, whose they are, and when they are nobody's any more."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import Change
from rowlock.authentication.service_account_tokens import ISSUER, KEY_FILE, ServiceAccountTokens
from rowlock.authentication.users import User
from rowlock.controllers.view.state import State
from rowlock.errors import Unauthorized
from rowlock.http_server.certificates import ensure_certificates
from rowlock.objects import Object

NAME = "system:serviceaccount:a:robot"
ACCOUNT: Object = {"kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "a", "uid": "u1"}}
POD: Object = {"kind": "Pod", "metadata": {"name": "p", "namespace": "a", "uid": "u2"}, "spec": {"nodeName": "n"}}


class Issuing:
    """Tokens over a state that holds an account and a pod, at a time that the test sets."""

    def __init__(self, directory: Path) -> None:
        ensure_certificates(directory)
        self.state, self.now = State(), 1_000_000.0
        self.tokens = ServiceAccountTokens(directory / KEY_FILE, self.state, clock=lambda: self.now)
        for kind, obj in ((kinds.SERVICE_ACCOUNT, ACCOUNT), (kinds.POD, POD)):
            self.state.apply(Change("Added", 1, kind, obj))

    def refusal(self, token: str, *audiences: str) -> str:
        with pytest.raises(Unauthorized) as refused:
            self.tokens.authenticate(token, audiences or (ISSUER,))
        return refused.value.message


@pytest.fixture
def issuing(tmp_path: Path) -> Issuing:
    return Issuing(tmp_path)


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def test_a_token_says_what_a_real_one_says(issuing: Issuing) -> None:
    token, expires = issuing.tokens.issue(ACCOUNT, seconds=600, bound=POD)
    claims = claims_of(token)
    assert expires == 1_000_600 and len(claims.pop("jti")) == 36
    assert claims == {
        "aud": [ISSUER], "exp": 1_000_600, "iat": 1_000_000, "nbf": 1_000_000, "iss": ISSUER, "sub": NAME,
        "kubernetes.io": {
            "namespace": "a", "serviceaccount": {"name": "robot", "uid": "u1"}, "pod": {"name": "p", "uid": "u2"},
            "node": {"name": "n"},
        },
    }  # fmt: skip


def test_whose_it_is(issuing: Issuing) -> None:
    user = issuing.tokens.authenticate(issuing.tokens.issue(ACCOUNT, bound=POD).token)
    groups = ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated")
    assert (user.name, user.groups, user.uid) == (NAME, groups, "u1")
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert isinstance(hash(user), int)


def test_it_expires(issuing: Issuing) -> None:
    token = issuing.tokens.issue(ACCOUNT, seconds=600).token
    assert issuing.tokens.find_user(token)
    issuing.now += 600
    assert issuing.tokens.find_user(token) is None
    assert issuing.refusal(token) == "service account token has expired"


@pytest.mark.parametrize("gone", ["account", "pod", "another account", "another pod"])
def test_it_dies_with_its_account_and_its_pod(issuing: Issuing, gone: str) -> None:
    token = issuing.tokens.issue(ACCOUNT, bound=POD).token
    assert issuing.tokens.find_user(token)
    kind, obj = (kinds.POD, POD) if "pod" in gone else (kinds.SERVICE_ACCOUNT, ACCOUNT)
    issuing.state.apply(Change("Deleted", 2, kind, obj))
    if "another" in gone:
        issuing.state.apply(Change("Added", 3, kind, {**obj, "metadata": {**obj["metadata"], "uid": "u9"}}))
    assert issuing.tokens.find_user(token) is None


def test_it_is_good_for_its_audience_alone(issuing: Issuing) -> None:
    token = issuing.tokens.issue(ACCOUNT, audiences=("vault",)).token
    assert issuing.tokens.find_user(token) is None
    assert issuing.tokens.authenticate(token, ("other", "vault")).name == NAME
    assert issuing.refusal(token) == f'token audiences ["vault"] is invalid for the target audiences ["{ISSUER}"]'


def forged(token: str, **changed: Any) -> str:
    head, _, signature = token.split(".")
    text = json.dumps({**claims_of(token), **changed}).encode()
    return f"{head}.{base64.urlsafe_b64encode(text).decode().rstrip('=')}.{signature}"


def test_who_forges_one_is_nobody(issuing: Issuing, tmp_path: Path) -> None:
    token = issuing.tokens.issue(ACCOUNT).token
    (tmp_path / "other").mkdir()
    elsewhere = Issuing(tmp_path / "other").tokens.issue(ACCOUNT).token
    unsigned = (
        base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').decode().rstrip("=") + "." + token.split(".")[1] + "."
    )
    symmetric = (
        base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=") + token[token.index(".") :]
    )
    wrong = [
        forged(token, sub="system:serviceaccount:kube-system:root"),
        forged(token, exp=2**40),
        elsewhere,
        unsigned,
        symmetric,
    ]
    for bad in [
        *wrong,
        token[:-3] + "AAA",
        token + "=",
        "eyJ..",
        "eyJhbGciOiJFUzI1NiJ9.e30.",
        "x" * 5000 + "..",
        "eyJ\u00e9.a.b",
    ]:
        assert issuing.tokens.find_user(bad) is None, bad


def test_a_user_is_no_mapping_of_his_extras() -> None:
    assert User("a", extra={"x": ("y",)}) != User("a")
