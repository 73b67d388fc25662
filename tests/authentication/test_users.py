"""Users of a server that others can reach: the file that names them, what each may do, and where the owner's token counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from rowlock import kinds
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.server import application
from rowlock.apiserver.server.settings import ApiServerSettings
from rowlock.authentication import checked_tokens, users
from rowlock.authentication.checked_tokens import CheckedTokens
from rowlock.authorization import bootstrap_policy
from rowlock.errors import BadRequest
from rowlock.http_server import sockets
from rowlock.storage import bootstrap
from rowlock.storage.store import Store

OWNER, ANA, BOB, EVE = "the-owners-own-token-here", "a" * 32, "b" * 32, "e" * 32
PEOPLE = {
    ANA: users.User("ana", (users.MASTERS, users.AUTHENTICATED), "1"),
    BOB: users.User("bob", ("rowlock:viewers", "team", users.AUTHENTICATED)),
    EVE: users.User("eve"),
}


def file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "users.csv"
    path.write_text(text)
    path.chmod(mode)
    return path


# ---------------------------------------------------------------- the file


def test_the_file_is_that_of_a_real_api_server(tmp_path: Path) -> None:
    text = f'# who may come in\n\n{ANA},ana,1,system:masters\n{BOB}, bob ,2,"rowlock:viewers, team"\n{EVE},eve,3\n'
    found = users.read_token_file(file(tmp_path, text))
    assert found[ANA] == users.User("ana", ("system:masters", "system:authenticated"), "1")
    assert found[BOB].groups == ("rowlock:viewers", "team", "system:authenticated")
    assert [found[token].is_master for token in (ANA, BOB, EVE)] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no user"),
        ("# nobody\n", "names no user"),
        (f"{ANA},ana\n", "line 1: a user is a line"),
        (f"{ANA},,1\n", "line 1: a user is a line"),
        (f"{ANA},ana,1,a,b\n", "line 1: several groups stand in one pair of quotes"),
        ("short,ana,1\n", "line 1: the token of ana can be guessed"),
        (f"{'a' * 20} {'b' * 20},ana,1\n", "line 1: the token of ana can be guessed or cannot be sent"),
        (f"{ANA},ana,1\n{ANA},bob,2\n", "line 2: the token of bob is that of line 1 too"),
        (f"{ANA},rowlock-admin,1\n", "is the owner of this cluster"),
        ('"' + "a" * 200_000, "is no file of lines"),
    ],
)
def test_a_wrong_line_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        users.read_token_file(file(tmp_path, text))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"others can read the tokens .* \(mode 0640\): `chmod 600"):
        users.read_token_file(file(tmp_path, f"{ANA},ana,1\n", 0o640))
    with pytest.raises(BadRequest, match=r"cannot be read .No such file"):
        users.read_token_file(tmp_path / "absent.csv")
    with pytest.raises(BadRequest, match="is no file of lines"):
        path = file(tmp_path, "")
        path.write_bytes(b"\xff\xfe\x00")
        users.read_token_file(path)


# ---------------------------------------------------------------- where


@pytest.mark.parametrize("bind", ["", "localhost", "127.0.0.1", "::1", "[::1]"])
def test_loopback_is_nowhere_else(bind: str) -> None:
    assert sockets.parse_bind(bind) == ""


@pytest.mark.parametrize("bind", ["127.0.0.2", "0.0.0.0", "::", "192.0.2.7"])
def test_everything_but_loopback_is_elsewhere(bind: str) -> None:
    assert sockets.parse_bind(bind) == bind
    assert sockets.server_names(bind, "gpu-box, gpu-box.lab")[:2] == ["gpu-box", "gpu-box.lab"]


def test_an_address_is_an_address(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r'--bind takes an address of this machine, .* not "gpu-box"'):
        sockets.parse_bind("gpu-box")
    with pytest.raises(BadRequest, match=r"192\.0\.2\.7 is not an address of this machine: --bind takes one of"):
        sockets.open_listeners(0, tmp_path, "192.0.2.7")


def test_one_port_on_both_addresses(tmp_path: Path) -> None:
    made = sockets.open_listeners(0, tmp_path, "127.0.0.2")
    addresses = [sock.getsockname() for sock in made]
    for sock in made:
        sock.close()
    assert [host for host, _ in addresses] == ["127.0.0.1", "127.0.0.2"]
    assert len({port for _, port in addresses}) == 1


# ---------------------------------------------------------------- who may do what

Asked = Callable[..., httpx.Response]


def asked(token: str, host: str = "10.0.0.5", *calls: tuple[str, str, Any]) -> list[httpx.Response]:
    """What a server that is bound elsewhere answers at one of its addresses."""

    async def main() -> list[httpx.Response]:
        store = Store.open(None, admission=AdmissionChain, patches=Patcher())
        for kind, obj in [*bootstrap.initial_objects(), *bootstrap_policy.initial_objects()]:
            await store.create(kind, obj)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        await store.create(kinds.SECRET, secret)
        app = application.ApiServer(store, ApiServerSettings(token=OWNER, tokens=PEOPLE, owner_loopback_only=True))
        transport = httpx.ASGITransport(app=app)
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url=f"https://{host}:6443", headers=headers) as client:
            return [await client.request(method, path, json=body) for method, path, body in calls]

    return asyncio.run(main())


LIST, SECRETS = ("GET", "/api/v1/namespaces", None), ("GET", "/api/v1/secrets", None)
CREATE = ("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
SLICES = ("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", None)
EXEC = ("GET", "/api/v1/namespaces/default/pods/p/exec?command=id", None)
EVERYTHING = (LIST, SLICES, SECRETS, CREATE, EXEC)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_owner_comes_in_on_loopback(host: str) -> None:
    assert [a.status_code for a in asked(OWNER, host, LIST, CREATE)] == [200, 201]


@pytest.mark.parametrize("token", [OWNER, "", "x" * 32])
def test_elsewhere_only_users_come_in(token: str) -> None:
    assert {a.status_code for a in asked(token, "10.0.0.5", *EVERYTHING)} == {401}


@pytest.mark.parametrize(
    ("token", "codes"), [(ANA, [200, 200, 200, 201, 404]), (BOB, [200, 200, 403, 403, 403]), (EVE, [403] * 5)]
)
def test_rights_come_from_bindings_of_groups(token: str, codes: list[int]) -> None:
    assert [a.status_code for a in asked(token, "10.0.0.5", *EVERYTHING)] == codes


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("token", [EVE, "no token at all"])
def test_who_may_not_write_is_refused_before_anything_is_read(token: str, method: str) -> None:
    """A body costs nothing but its bytes then: here it would be no object, and no text of any format."""
    path = "/api/v1/namespaces/default/configmaps" + ("" if method == "POST" else "/c")
    (answer,) = asked(token, "10.0.0.5", (method, path, ["no object"]))
    assert answer.status_code == (403 if token == EVE else 401)
    (may,) = asked(ANA, "10.0.0.5", (method, path, ["no object"]))
    assert may.status_code in (400, 415), "who may is told what is wrong with it"


def test_a_refusal_is_in_a_real_servers_words() -> None:
    (answer,) = asked(BOB, "10.0.0.5", SECRETS)
    said = 'secrets is forbidden: User "bob" cannot list resource "secrets" in API group "" at the cluster scope'
    assert answer.json()["message"] == said


@pytest.mark.parametrize(
    ("token", "verb", "resource", "sub", "allowed"),
    [
        (ANA, "delete", "nodes", "", True), (BOB, "list", "pods", "", True), (BOB, "get", "pods", "log", True),
        (BOB, "create", "pods", "", False), (BOB, "get", "secrets", "", False), (BOB, "get", "pods", "exec", False),
        (EVE, "list", "pods", "", False), (ANA, "*", "*", "", True), (BOB, "*", "*", "", False),
        (BOB, "get", "*", "", False), (BOB, "get", "pods", "*", False), (BOB, "*", "pods", "", False),
    ],
)  # fmt: skip
def test_can_i_says_what_would_happen(token: str, verb: str, resource: str, sub: str, allowed: bool) -> None:
    attributes = {"verb": verb, "resource": resource, "subresource": sub}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    (answer,) = asked(token, "10.0.0.5", ("POST", path, {"spec": {"resourceAttributes": attributes}}))
    assert (answer.status_code, answer.json()["status"]["allowed"]) == (201, allowed)


def test_everybody_may_ask_who_he_is() -> None:
    who, rules = asked(
        EVE,
        "10.0.0.5",
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}),
    )
    assert who.json()["status"]["userInfo"]["username"] == "eve"
    allowed = {rule["resources"][0] for rule in rules.json()["status"]["resourceRules"]}
    assert allowed == {"selfsubjectaccessreviews", "selfsubjectreviews", "clustertrainingruntimes"}


def test_checked_tokens_have_a_bound() -> None:
    known, checks = CheckedTokens(), list[str]()

    def check(token: str) -> dict[str, str]:
        checks.append(token)
        return {"sub": token}

    for number in range(3 * checked_tokens._MOST):
        assert (
            known.claims_of(f"token {number}", check)
            == known.claims_of(f"token {number}", check)
            == {"sub": f"token {number}"}
        )
        assert len(known) <= checked_tokens._MOST
    assert len(checks) == 3 * checked_tokens._MOST, "each was checked once"
