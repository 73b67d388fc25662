"""Credentials that end, are taken back or change while requests are under way: they are read again, seldom, and once for all who need them."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.kube.scripted import Answer, Asked, Scripted, refusal

from rowlock import kinds
from rowlock.errors import Unauthorized, Unavailable
from rowlock.http_server.certificates import Certificates, ensure_certificates
from rowlock.kube import config, connection
from rowlock.kube.client import Kube
from rowlock.kube.connection import Connection
from rowlock.kube.rate_limit import Limits

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "team", "resourceVersion": "7"},
}
LIMITS = Limits(qps=0, max_tries=1, connect_timeout=110, read_timeout=110, watch_retry_seconds=0.0)
LONG_S = 3600.0
AT_ONCE = 20
PLUGIN = """
import json, pathlib, time
count = pathlib.Path(__file__).with_name('count')
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
while not count.with_name('go').exists():
    time.sleep(0.02)
status = {'token': f'token-{number}'}
print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', 'status': status}))
"""


def only(*tokens: str) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        is_good = asked.headers.get("authorization", "").removeprefix("Bearer ") in tokens
        return Answer(body=POD) if is_good else Answer(401, refusal(401, "Unauthorized", "Unauthorized"))

    return answer


def plugin_user(where: Path, *, goes: bool = True) -> Mapping[str, Any]:
    """A kubeconfig's user whose tokens a program gives: `token-1` the first time; it has its end when the file `go` is there."""
    (where / "plugin.py").write_text(PLUGIN)
    if goes:
        (where / "go").touch()
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    return {"exec": {**command, "args": [str(where / "plugin.py")]}}


def runs(where: Path) -> int:
    """How often the plugin was run."""
    return int((where / "count").read_text())


async def ask(kube: Kube) -> str:
    try:
        await kube.get(kinds.POD, "team", "a")
    except Unauthorized as error:
        return error.message
    return ""


def test_who_is_refused_together_has_the_plugin_run_once(tmp_path: Path) -> None:
    async def run() -> None:
        server = Scripted(only("token-1", "token-2"))
        async with (
            server.running(),
            Kube.connect(server.kubeconfig(tmp_path, plugin_user(tmp_path)), limits=LIMITS) as kube,
        ):
            assert await ask(kube) == ""
            server._answers = [only("token-2")]
            assert await asyncio.gather(*(ask(kube) for _ in range(AT_ONCE))) == [""] * AT_ONCE
        assert runs(tmp_path) == 2

    asyncio.run(run())


def test_a_plugin_whose_tokens_are_refused_is_not_run_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PLUGIN_PAUSE_S", LONG_S)

    async def run() -> None:
        server = Scripted(only("another"))
        async with (
            server.running(),
            Kube.connect(server.kubeconfig(tmp_path, plugin_user(tmp_path)), limits=LIMITS) as kube,
        ):
            said = {await ask(kube) for _ in range(AT_ONCE)}
        assert runs(tmp_path) == 2 and len(server.asked) == AT_ONCE + 1
        (sentence,) = said
        assert "does not accept the credentials" in sentence and f"{sys.executable}, the program of" in sentence

    asyncio.run(run())


def test_a_kubeconfig_is_read_again_seldom_and_its_new_token_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RENEWAL_PAUSE_S", LONG_S)

    async def run() -> None:
        server = Scripted(only("new"))
        path = server.kubeconfig(tmp_path, {"token": "old"})
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path, {"token": "old"}), limits=LIMITS) as kube:
            said = {await ask(kube) for _ in range(AT_ONCE)}
            assert len(server.asked) == AT_ONCE + 1, "tried again once, and never with what was refused a moment ago"
            (sentence,) = said
            assert f"write new ones into the kubeconfig {path}, which is read again" in sentence
            server.kubeconfig(tmp_path, {"token": "new"})
            assert await ask(kube) != "", "it is not time to read it"
            kube.connection._renew_not_before = 0.0  # type: ignore[union-attr] # the time has come
            assert await ask(kube) == ""

    asyncio.run(run())


def test_the_files_of_a_client_certificate_are_named(tmp_path: Path) -> None:
    """As seen from the kubeconfig, or where they are."""

    async def run() -> None:
        server = Scripted(only("none"))
        certificates = ensure_certificates(tmp_path)
        user = {"client-certificate": certificates.certificate.name, "client-key": str(certificates.key)}
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path, user), limits=LIMITS) as kube:
            files = f"{certificates.certificate} and {certificates.key}"
            assert f"write a new certificate and key into {files}, which are read again" in await ask(kube)

    asyncio.run(run())


def test_a_plugin_without_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "PLUGIN_PATIENCE_S", 0.2)

    async def run() -> None:
        server = Scripted(only("token-1"))
        user = plugin_user(tmp_path, goes=False)
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path, user), limits=LIMITS) as kube:
            assert f"{sys.executable} had not ended after" in await ask(kube)

    asyncio.run(run())


def test_who_waits_no_longer_stops_no_plugin_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe of the cluster waits for four seconds; some plugins take longer."""
    monkeypatch.setattr(config, "PLUGIN_PATIENCE_S", LONG_S)

    async def run() -> None:
        server = Scripted(only("token-1"))
        user = plugin_user(tmp_path, goes=False)
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path, user), limits=LIMITS) as kube:
            impatient = asyncio.create_task(ask(kube))
            while not (tmp_path / "count").exists():
                await asyncio.sleep(0.01)
            impatient.cancel()
            await asyncio.wait({impatient})
            (tmp_path / "go").touch()
            assert await ask(kube) == "" and runs(tmp_path) == 1

    asyncio.run(run())


# ---------------------------------------------------------------- the server's certificate


class SecureServer(Scripted):
    """`Scripted` over TLS, with a certificate that can be replaced by another authority's."""

    def __init__(self, authority: Certificates, *answers: Answer | Callable[[Asked], Answer]) -> None:
        super().__init__(*answers)
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.show(authority)

    def show(self, authority: Certificates) -> None:
        """To all who connect from now on."""
        self.tls.load_cert_chain(authority.certificate, authority.key)

    def trusting(self, where: Path, authority: Certificates) -> Path:
        return self.kubeconfig(where, {"token": "t"}, **{"certificate-authority": str(authority.ca)})


def make_authorities(where: Path) -> list[Certificates]:
    made = []
    for name in ("first", "second", "third"):
        (where / name).mkdir()
        made.append(ensure_certificates(where / name))
    return made


def test_a_new_authority_of_the_kubeconfig_counts_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RENEWAL_PAUSE_S", 0.0)
    first, *others = make_authorities(tmp_path)

    async def run() -> None:
        server = SecureServer(first, Answer(201, POD, {"Connection": "close"}))
        async with server.running(server.tls):
            async with Kube.connect(server.trusting(tmp_path, first), limits=LIMITS) as kube:
                await kube.create(kinds.POD, POD)
                for number, authority in enumerate(others, 2):
                    server.show(authority)
                    with pytest.raises(
                        Unavailable, match=r"is not of the authority that the kubeconfig .* names: write"
                    ):
                        await kube.create(kinds.POD, POD)
                    server.trusting(tmp_path, authority)
                    await kube.create(kinds.POD, POD)
                    assert len(server.asked) == number, "each was created once"
                assert isinstance(kube.connection, Connection)
                assert kube.connection._retired == [], "what nobody uses any more is closed"

    asyncio.run(run())
