"""What `kube/` does when the network or the server is not at its best."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import ssl
import sys
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.kube.scripted import Answer, Asked, Scripted, refusal

from rowlock import kinds
from rowlock.api import Change, DeleteOptions, LogOptions, WriteOptions
from rowlock.errors import ApiError, Expired, Internal, Timeout, TooManyRequests, Unauthorized, Unavailable
from rowlock.http_server.certificates import ensure_certificates
from rowlock.http_server.tls import server_context
from rowlock.kube.client import Kube
from rowlock.kube.config import ClientConfig, Credentials
from rowlock.kube.connection import Request
from rowlock.kube.http_client import choose_proxy
from rowlock.kube.rate_limit import Limits
from rowlock.kube.watches.object_decoder import ObjectDecoder

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "team", "resourceVersion": "7"},
}
QUICK = Limits(qps=0, max_tries=3, connect_timeout=20, read_timeout=20, watch_retry_seconds=0.0)
BUSY = Answer(503, refusal(503, "ServiceUnavailable"))
SLOW_DOWN = Answer(429, refusal(429, "TooManyRequests"), {"Retry-After": "0"})
CUT = Answer(cut=True)


def against(server: Scripted, where: Path, act: Callable[[Kube], Awaitable[Any]], **options: Any) -> Any:
    """What `act` returns with a client of the scripted server."""
    user = options.pop("user", None)

    async def run() -> Any:
        async with server.running(), Kube.connect(server.kubeconfig(where, user), limits=QUICK) as kube:
            return await act(kube)

    return asyncio.run(run())


@pytest.mark.parametrize(
    "fault", [BUSY, CUT, SLOW_DOWN, Answer(500, refusal(500, "InternalError")), Answer(502, b"<html>")]
)
def test_a_get_is_tried_again(fault: Answer, tmp_path: Path) -> None:
    server = Scripted(fault, fault, Answer(body=POD))
    assert against(server, tmp_path, lambda k: k.get(kinds.POD, "team", "a")) == POD
    assert [a.method for a in server.asked] == ["GET"] * 3


def test_a_get_is_not_tried_for_ever(tmp_path: Path) -> None:
    server = Scripted(BUSY)
    with pytest.raises(Unavailable):
        against(server, tmp_path, lambda k: k.get(kinds.POD, "team", "a"))
    assert len(server.asked) == QUICK.max_tries


@pytest.mark.parametrize(("fault", "error"), [(BUSY, Unavailable), (CUT, Unavailable)])
def test_a_write_is_never_sent_twice(fault: Answer, error: type[ApiError], tmp_path: Path) -> None:
    server = Scripted(fault, Answer(body=POD))
    with pytest.raises(error):
        against(server, tmp_path, lambda k: k.create(kinds.POD, POD))
    assert len(server.asked) == 1


def test_a_write_on_a_kept_connection_is_never_sent_twice(tmp_path: Path) -> None:
    """HTTP allows to repeat a PUT or a DELETE; a scheduler must know what it did."""

    async def act(kube: Kube) -> None:
        for write in (kube.update(kinds.POD, POD), kube.delete(kinds.POD, "team", "a")):
            await kube.get(kinds.POD, "team", "a")
            with pytest.raises(Unavailable):
                await write

    server = Scripted(lambda asked: Answer(body=POD) if asked.method == "GET" else CUT)
    against(server, tmp_path, act)
    assert [a.method for a in server.asked] == ["GET", "PUT", "GET", "DELETE"] and server.connections == 2


def test_connections_are_kept_and_bounded(tmp_path: Path) -> None:
    limits = Limits(qps=0, max_in_flight=4)

    async def run(server: Scripted) -> None:
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path), limits=limits) as kube:
            await asyncio.gather(*(kube.get(kinds.POD, "team", "a") for _ in range(40)))

    server = Scripted(Answer(body=POD))
    asyncio.run(run(server))
    assert len(server.asked) == 40 and server.connections <= 4


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """The token is for the server of the kubeconfig."""
    server = Scripted(Answer(302, b"", {"Location": "http://elsewhere.example.test/"}))
    with pytest.raises(ApiError, match="HTTP 302"):
        against(server, tmp_path, lambda k: k.get(kinds.POD, "team", "a"))
    assert len(server.asked) == 1


def test_a_write_that_was_told_to_wait_waits(tmp_path: Path) -> None:
    server = Scripted(SLOW_DOWN, Answer(201, POD))
    assert against(server, tmp_path, lambda k: k.create(kinds.POD, POD)) == POD


@pytest.mark.parametrize("status", [(429, "TooManyRequests"), (503, "ServiceUnavailable")])
def test_a_server_that_wants_an_hour_is_not_waited_for(status: tuple[int, str], tmp_path: Path) -> None:
    server = Scripted(Answer(status[0], refusal(*status), {"Retry-After": "3600"}), Answer(body=POD))
    with pytest.raises((TooManyRequests, Unavailable)):
        against(server, tmp_path, lambda k: asyncio.wait_for(k.get(kinds.POD, "team", "a"), 200))
    assert len(server.asked) == 1


def test_a_refusal_without_a_time_is_an_answer(tmp_path: Path) -> None:
    server = Scripted(Answer(429, refusal(429, "TooManyRequests", "disruption budget")))
    with pytest.raises(TooManyRequests, match="disruption budget"):
        against(server, tmp_path, lambda k: k.create(kinds.POD, POD))
    assert len(server.asked) == 1


def test_a_server_that_says_nothing_times_out(tmp_path: Path) -> None:
    async def run() -> None:
        async def mute(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.append(writer)

        held: list[asyncio.StreamWriter] = []
        listener = await asyncio.start_server(mute, "127.0.0.1", 0)
        server = Scripted()
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with Kube.connect(server.kubeconfig(tmp_path), limits=Limits(read_timeout=0.05)) as kube:
            with pytest.raises(Timeout, match="POST /api/v1/namespaces/team/pods: no answer in time"):
                await kube.create(kinds.POD, POD)
        for writer in held:
            writer.close()
        listener.close()

    asyncio.run(run())


def test_nobody_there_is_said_in_a_sentence(tmp_path: Path) -> None:
    server = Scripted()
    server.url = "http://127.0.0.1:1"
    with pytest.raises(Unavailable, match="the API server cannot be reached"):
        asyncio.run(_create(server.kubeconfig(tmp_path)))


async def _create(kubeconfig: Path) -> None:
    async with Kube.connect(kubeconfig, limits=QUICK) as kube:
        await kube.create(kinds.POD, POD)


def test_no_kubeconfig_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        Unauthorized, match=r"the credentials of the cluster do not work: .*; check the kubeconfig .*nothing"
    ):
        asyncio.run(_create(tmp_path / "nothing"))


def test_an_authority_that_is_not_there_is_named(tmp_path: Path) -> None:
    """As in a container that has the kubeconfig, and not the files it names."""
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": str(tmp_path / "ca.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    with pytest.raises(Unauthorized, match=r"No such file or directory: '.*/ca\.crt'; check the kubeconfig"):
        asyncio.run(_create(tmp_path / "kubeconfig"))


@pytest.mark.parametrize("renewed", [False, True], ids=["first", "renewed"])
def test_a_kubeconfig_that_is_being_written_is_said_in_a_sentence(renewed: bool, tmp_path: Path) -> None:
    """Whoever writes it has got to each of its characters once: then it has our token or a part of it, or we are told."""
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    whole, file = yaml.safe_dump(config, sort_keys=False), tmp_path / "kubeconfig"

    async def written(part: str) -> str:
        file.write_text(whole)
        credentials = Credentials(file)
        if renewed:
            await credentials.renew()
        file.write_text(part)
        try:
            return (await credentials.renew()).token
        except Unauthorized as refusal:
            assert str(file) in str(refusal)
            return "refused"

    async def all_of_them() -> list[str]:
        return [await written(whole[:length]) for length in range(len(whole) + 1)]

    tokens = asyncio.run(all_of_them())
    begun = tokens.index("s")
    assert tokens[-1] == "secret"
    assert all("secret".startswith(token) for token in tokens[begun:])
    assert set(tokens[:begun]) == ({"refused"} if renewed else {"refused", ""}), "a token that was never there is none"


# ---------------------------------------------------------------- who we are


def _only(token: str) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        good = asked.headers.get("authorization") == f"Bearer {token}"
        return Answer(body=POD) if good else Answer(401, refusal(401, "Unauthorized"))

    return answer


def test_a_token_file_that_rotates_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")

    async def act(kube: Kube) -> None:
        await kube.get(kinds.POD, "team", "a")
        file.write_text("new\n")
        await kube.get(kinds.POD, "team", "a")

    server = Scripted(_only("old"), _only("new"))
    against(server, tmp_path, act, user={"tokenFile": "token"})
    assert [a.headers["authorization"] for a in server.asked] == ["Bearer old", "Bearer old", "Bearer new"]


def test_a_token_file_that_is_being_written_is_no_token(tmp_path: Path) -> None:
    """Without it we would be nobody, who is forbidden everything for ever: a 403 does not let the file be read again."""
    file = tmp_path / "token"
    file.write_text("old\n")

    async def act(kube: Kube) -> None:
        await kube.get(kinds.POD, "team", "a")
        file.write_text("")
        with pytest.raises(Unauthorized, match=r"the kubeconfig's tokenFile .*/token is empty: write a token into it"):
            await kube.get(kinds.POD, "team", "a")
        file.write_text("new\n")
        await kube.get(kinds.POD, "team", "a")

    server = Scripted(_only("old"), _only("new"))
    against(server, tmp_path, act, user={"tokenFile": "token"})
    old, new = "Bearer old", "Bearer new"
    assert [a.headers["authorization"] for a in server.asked] == [old, old, old, new]


def test_an_exec_plugin_is_asked_again_when_its_token_is_refused(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib\n"
        "count = pathlib.Path(__file__).with_name('count')\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        "status = {'token': f'token-{number}'}\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', 'status': status}))\n"
    )
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(plugin)]}
    server = Scripted(_only("token-2"))
    assert against(server, tmp_path, lambda k: k.get(kinds.POD, "team", "a"), user={"exec": command}) == POD
    assert (tmp_path / "count").read_text() == "2"


def test_who_is_refused_again_is_told(tmp_path: Path) -> None:
    server = Scripted(_only("other"))
    with pytest.raises(Unauthorized):
        against(server, tmp_path, lambda k: k.get(kinds.POD, "team", "a"))
    assert len(server.asked) == 2


def test_requests_go_through_the_kubeconfigs_proxy(tmp_path: Path) -> None:
    proxy = Scripted(Answer(body=POD))

    async def run() -> None:
        server = Scripted()
        server.url = "http://api.example.test:6443"
        async with proxy.running():
            path = server.kubeconfig(tmp_path, None, **{"proxy-url": proxy.url})
            async with Kube.connect(path, limits=QUICK) as kube:
                await kube.get(kinds.POD, "team", "a")

    asyncio.run(run())
    assert proxy.asked[0].path == "http://api.example.test:6443/api/v1/namespaces/team/pods/a"


PROXY = "http://proxy.example.test:3128"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"https_proxy": PROXY}, PROXY),
        ({"all_proxy": PROXY}, PROXY),
        ({"http_proxy": PROXY}, None),
        ({"https_proxy": PROXY, "no_proxy": "example.test"}, None),
    ],
)
def test_the_proxy_of_the_environment(
    environment: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert choose_proxy(ClientConfig("https://api.example.test:6443", True)) == expected


def test_a_proxy_that_cannot_be_used_is_refused_in_a_sentence() -> None:
    with pytest.raises(Unauthorized, match=r"the proxy socks5://x:1 cannot be used: proxies of http"):
        choose_proxy(ClientConfig("https://api.example.test", True, proxy="socks5://x:1"))


# ---------------------------------------------------------------- what is sent


def test_options_become_queries(tmp_path: Path) -> None:
    async def act(kube: Kube) -> None:
        options = WriteOptions(dry_run=True, manager="me", force=True, validation="Strict")
        await kube.patch(kinds.PYTORCHJOB, "team", "a", {"x": 1}, type="apply", subresource="status", options=options)
        await kube.delete(kinds.POD, "team", "a", options=DeleteOptions("Foreground", 3, "u", 9, True))

    server = Scripted(Answer(body=POD))
    against(server, tmp_path, act)
    patch, delete = server.asked
    assert patch.path == "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/a/status"
    assert patch.headers["content-type"] == "application/apply-patch+yaml"
    assert patch.query == {"dryRun": "All", "fieldManager": "me", "fieldValidation": "Strict", "force": "true"}
    assert json.loads(delete.body) == {
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "gracePeriodSeconds": 3,
        "dryRun": ["All"], "preconditions": {"uid": "u", "resourceVersion": "9"},
    }  # fmt: skip


def test_warnings_are_collected(tmp_path: Path) -> None:
    options = WriteOptions()
    headers = {"Warning": '299 - "unknown field \\"spec.x\\"", 299 - "second"'}
    server = Scripted(Answer(201, POD, headers))
    against(server, tmp_path, lambda k: k.create(kinds.POD, POD, options=options))
    assert options.warnings == ['unknown field "spec.x"', "second"]


def test_a_log_is_streamed(tmp_path: Path) -> None:
    async def act(kube: Kube) -> bytes:
        options = LogOptions("main", True, True, 5, 1_700_000_000.25, True, 100)
        return b"".join([chunk async for chunk in kube.log("team", "a", options)])

    server = Scripted(Answer(lines=[b"one\n", b"two\n"]))
    assert against(server, tmp_path, act) == b"one\ntwo\n"
    assert server.asked[0].query == {
        "container": "main", "follow": "true", "previous": "true", "timestamps": "true", "tailLines": "5",
        "limitBytes": "100", "sinceTime": "2023-11-14T22:13:20.250000Z",
    }  # fmt: skip


def test_a_stream_that_broke_is_no_garbage(tmp_path: Path) -> None:
    """Collecting that of a thousand followed logs held the event loop for 100 ms when an API server died."""

    async def act(kube: Kube) -> None:
        answers = list[weakref.ref[Any]]()
        gc.disable()
        try:
            with pytest.raises(Unavailable):
                async with kube.connection.stream(Request("GET", "/x"), endless=True) as answer:
                    answers.append(weakref.ref(answer))
                    del answer
                    async for _ in answers[0]().content.iter_any():  # type: ignore[union-attr]
                        pass
            await asyncio.sleep(0)
            assert answers[0]() is None
        finally:
            gc.enable()

    against(Scripted(Answer(lines=[b"one\n"], cut=True)), tmp_path, act)


def test_a_node_that_cannot_be_reached_is_asked_for_a_log_once(tmp_path: Path) -> None:
    """Whoever follows a thousand logs waits in his own way; the API server itself is asked again as for any GET."""

    async def act(kube: Kube) -> bytes:
        return b"".join([chunk async for chunk in kube.log("team", "a")])

    unreachable = Answer(500, refusal(500, "InternalError", "dial tcp: connect: connection refused"))
    server = Scripted(unreachable, Answer(lines=[b"one\n"]))
    with pytest.raises(ApiError, match="connection refused"):
        against(server, tmp_path, act)
    assert len(server.asked) == 1
    assert against(Scripted(BUSY, Answer(lines=[b"one\n"])), tmp_path, act) == b"one\n"


# ---------------------------------------------------------------- watches


def event(type_: str, revision: int, **annotations: str) -> dict[str, Any]:
    meta = {**POD["metadata"], "resourceVersion": str(revision), "annotations": annotations}
    return {"type": type_, "object": {**POD, "metadata": meta}}


def error(code: int, reason: str) -> dict[str, Any]:
    return {"type": "ERROR", "object": refusal(code, reason)}


async def _changes(kube: Kube, count: int, since: int | None = 5, bookmarks: bool = False) -> list[Change]:
    seen: list[Change] = []
    async for change in kube.watch(kinds.POD, "team", since=since, bookmarks=bookmarks):
        seen.append(change)
        if len(seen) == count:
            break
    return seen


def test_a_broken_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    server = Scripted(
        Answer(lines=[event("ADDED", 6), event("MODIFIED", 7)], cut=True),
        Answer(lines=[event("BOOKMARK", 9)]),
        Answer(lines=[event("DELETED", 10)]),
    )
    kubeconfig_limits = Limits(qps=0, watch_retry_seconds=5)

    async def run() -> list[Change]:
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path), limits=kubeconfig_limits) as kube:
            return await _changes(kube, 3)

    assert [(c.type, c.revision) for c in asyncio.run(run())] == [("Added", 6), ("Modified", 7), ("Deleted", 10)]
    assert [a.query["resourceVersion"] for a in server.asked] == ["5", "7", "9"]


@pytest.mark.parametrize("answer", [Answer(410, refusal(410, "Expired")), Answer(lines=[error(410, "Expired")])])
def test_an_expired_watch_says_so(answer: Answer, tmp_path: Path) -> None:
    with pytest.raises(Expired):
        against(Scripted(answer), tmp_path, lambda k: _changes(k, 1))


def test_lines_may_be_cut_anywhere(tmp_path: Path) -> None:
    text = b"".join(json.dumps(event("ADDED", n)).encode() + b"\n" for n in (6, 7, 8))
    pieces = [text[i : i + 11] for i in range(0, len(text), 11)]
    found = against(Scripted(Answer(lines=pieces)), tmp_path, lambda k: _changes(k, 3))
    assert [c.revision for c in found] == [6, 7, 8]


def test_a_stream_of_something_else_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Internal, match="not JSON"):
        against(Scripted(Answer(lines=[b"<html>\n"])), tmp_path, lambda k: _changes(k, 1))


def test_the_state_is_told_once_though_its_stream_broke(tmp_path: Path) -> None:
    end = event("BOOKMARK", 8, **{"k8s.io/initial-events-end": "true"})
    server = Scripted(
        Answer(lines=[event("ADDED", 6)], cut=True),
        Answer(lines=[event("ADDED", 6), event("MODIFIED", 7), end]),
    )

    async def run() -> list[Change]:
        async with server.running(), Kube.connect(server.kubeconfig(tmp_path), limits=Limits(qps=0)) as kube:
            return await _changes(kube, 2, since=None)

    assert [(c.type, c.revision) for c in asyncio.run(run())] == [("Added", 7), ("Bookmark", 8)]


def test_a_server_without_streaming_lists_is_listed(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Answer:
        if "sendInitialEvents" in asked.query:
            return Answer(422, refusal(422, "Invalid", "sendInitialEvents is forbidden"))
        if "watch" in asked.query:
            return Answer(lines=[event("DELETED", 12)])
        last = "continue" in asked.query
        items = [{"metadata": {"name": "b" if last else "a", "namespace": "team", "resourceVersion": "3"}}]
        return Answer(body={"metadata": {"resourceVersion": "9", "continue": "" if last else "more"}, "items": items})

    found = against(Scripted(answer), tmp_path, lambda k: _changes(k, 4, since=None))
    assert [c.type for c in found] == ["Added", "Added", "Bookmark", "Deleted"]
    assert [c.object["kind"] for c in found[:2]] == ["Pod", "Pod"] and found[2].revision == 9


@pytest.mark.parametrize("streams_lists", [True, False])
def test_a_watch_can_leave_managed_fields_out(tmp_path: Path, streams_lists: bool) -> None:
    metadata = {"name": "a", "namespace": "team", "resourceVersion": "3", "managedFields": [{"manager": "x"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    end = event("BOOKMARK", 8, **{"k8s.io/initial-events-end": "true"})

    def answer(asked: Asked) -> Answer:
        if "sendInitialEvents" in asked.query:
            lines = [{"type": "ADDED", "object": pod}, end]
            return Answer(lines=lines) if streams_lists else Answer(422, refusal(422, "Invalid", "forbidden"))
        if "watch" in asked.query:
            return Answer(lines=[{"type": "MODIFIED", "object": pod}])
        return Answer(body={"metadata": {"resourceVersion": "9"}, "items": [pod]})

    async def run(*, keep: bool) -> list[bool]:
        server = Scripted(answer)
        async with server.running():
            config = server.kubeconfig(tmp_path)
            async with Kube.connect(config, limits=QUICK, decoder=None if keep else ObjectDecoder()) as kube:
                changes = await _changes(kube, 3, since=None)
        return ["managedFields" in c.object["metadata"] for c in changes if c.object]

    assert asyncio.run(run(keep=False)) == [False, False]
    assert asyncio.run(run(keep=True)) == [True, True]


class _Silent(threading.Thread):
    """A TLS server that reads requests and never answers, also not to a client that closes its connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(daemon=True)
        self._context, self._ended = context, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.asked = self._listener.getsockname()[1], threading.Event()

    def run(self) -> None:
        connection, _ = self._listener.accept()
        with self._context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(65536)
            self.asked.set()
            self._ended.wait(200)

    def end(self) -> None:
        self._ended.set()
        self.join(60)
        self._listener.close()


def test_a_cancelled_request_leaves_no_open_connection(tmp_path: Path) -> None:
    """Its connection is aborted: a closing TLS handshake with a server that hangs would keep the descriptor for half a minute, and past the
    end of the event loop."""
    made = ensure_certificates(tmp_path, ["127.0.0.1"])
    server = _Silent(server_context(made.certificate, made.key))
    server.start()

    async def ask(kubeconfig: Path) -> None:
        async with Kube.connect(kubeconfig, limits=QUICK) as kube:
            asking = asyncio.create_task(kube.get(kinds.POD, "team", "a"))
            assert await asyncio.to_thread(server.asked.wait, 60)
            asking.cancel()
            await asyncio.wait([asking])

    named = Scripted()
    named.url = f"https://127.0.0.1:{server.port}"
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(ask(named.kubeconfig(tmp_path, None, **{"certificate-authority": str(made.ca)})))
        gc.collect()
    server.end()
    assert [str(one.message) for one in seen] == []
