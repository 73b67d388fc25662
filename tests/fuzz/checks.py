"""A real server in process, and what must hold whatever it is asked: no 500, no hang, nothing lost, nothing half done."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.apiserver.conftest import TOKEN, Harness
from tests.fuzz.requests import SPACE, Request, sequence

from rowlock.storage.store import Store

PATIENCE = 30.0
"""Seconds for one answer; longer is a hang."""
CANARIES = "canaries"
ALLOWED = (
    "failed to create typed patch object", "failed to convert new object", "failed to create manager for existing fields",
    "unknown patch type: ", "an element of the list does not contain declared merge key", "list element types are not identical: ",
)  # fmt: skip
"""What the real API server answers with 500 as well: a configuration that its schema cannot hold, a patch without keys."""


@dataclass
class Findings:
    """What was seen."""

    asked: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Attack:
    """One client that sends one request after the other and looks closely at each answer."""

    def __init__(self, url: str, authority: Path) -> None:
        parts = urlsplit(url)
        context = ssl.create_default_context(cafile=str(authority))
        assert parts.hostname
        self._connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=context, timeout=PATIENCE)
        self.found = Findings()

    def close(self) -> None:
        self._connection.close()

    def ask(self, request: Request) -> tuple[int, bytes]:
        """The answer. Raises OSError or HTTPException when there is none in time."""
        self._connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        for name, value in {"Authorization": f"Bearer {TOKEN}", **request.headers}.items():
            self._connection.putheader(name, value)
        self._connection.putheader("Content-Length", str(len(request.body)))
        self._connection.endheaders(request.body)
        response = self._connection.getresponse()
        return response.status, response.read()

    def get(self, path: str) -> tuple[int, bytes]:
        return self.ask(Request("GET", path, {"Accept": "application/json"}))

    def try_(self, name: str, request: Request) -> None:
        before = self.get(request.target) if request.target else None
        try:
            status, body = self.ask(request)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self.found.wrong.append(f"{name}: {request}\n    no answer: {error!r}")
            return
        self.found.asked += 1
        self.found.statuses[status] += 1
        why = _verdict(request, status, body) or (before and self._unchanged(request, status, body, before)) or ""
        if why:
            self.found.wrong.append(f"{name}: {request}\n    {status} {body[:600]!r}\n    {why}")

    def _unchanged(self, request: Request, status: int, body: bytes, before: tuple[int, bytes]) -> str:
        """A refused write wrote nothing; an accepted one wrote what it answered."""
        after = self.get(request.target)
        if status >= 400 or "dryRun=All" in request.path:
            same = before[0] == after[0] and (before[0] != 200 or before[1] == after[1])
            return "" if same else f"a write that was refused changed the object: {before} → {after}"
        answered = json.loads(body)
        if answered.get("kind") in ("Table", "PartialObjectMetadata") or request.method == "DELETE":
            return ""
        named = (answered.get("metadata") or {}).get("name")
        if after[0] == 200 and json.loads(after[1])["metadata"]["name"] == named and json.loads(after[1]) != answered:
            return f"what was answered is not what is stored: {after[1][:600]!r}"
        return ""


def _verdict(request: Request, status: int, body: bytes) -> str:
    if status >= 500:
        try:
            told = json.loads(body)
        except ValueError:
            return "an error of the server that is no Status"
        if status == 504 and told.get("reason") == "Timeout":
            return ""  # a resourceVersion from the future
        return "" if str(told.get("message", "")).startswith(ALLOWED) else "an error of the server"
    if status >= 400 and request.method != "HEAD":
        try:
            told = json.loads(body)
        except ValueError:
            return "a refusal that is no JSON"
        if told.get("kind") != "Status" or not told.get("message"):
            return "a refusal without a sentence"
    return ""


@contextmanager
def attacked(directory: Path) -> Iterator[tuple[Harness, Attack]]:
    """A server on disk and a client of it."""
    harness = Harness(directory, disk=True, collect=False)
    thread = threading.Thread(target=lambda: asyncio.run(harness.main()), daemon=True)
    thread.start()
    assert harness.ready.wait(200) and harness.running, "the server under test did not start"
    attack = Attack(harness.running.url, harness.running.ca)
    try:
        yield harness, attack
    finally:
        attack.close()
        harness.stop()
        thread.join(200)


def fuzz(directory: Path, seed: str, seconds: float, count: int | None = None) -> Findings:
    """Ask until the time is over (or `count` times), then look whether all is well. One line per finding."""
    deadline = time.monotonic() + seconds
    with attacked(directory) as (_, attack):
        canaries = _canaries(attack)
        for number, request in sequence(seed, count):
            attack.try_(f"seed {seed}:{number}", request)
            if time.monotonic() > deadline:
                break
        found = attack.found
        if attack.get("/readyz")[0] != 200:
            found.wrong.append("afterwards: the server does not answer")
        if _canaries_now(attack) != canaries:
            found.wrong.append("afterwards: objects that nobody touched have changed")
        listed = _everything(attack)
    found.wrong += _recovered(directory, listed)
    return found


def _canaries(attack: Attack) -> dict[str, Any]:
    for space in (CANARIES, SPACE):
        _post(attack, "/api/v1/namespaces", {"metadata": {"name": space}})
    for number in range(20):
        _post(
            attack,
            f"/api/v1/namespaces/{CANARIES}/configmaps",
            {"metadata": {"name": f"c-{number}"}, "data": {"n": "1"}},
        )
    return _canaries_now(attack)


def _post(attack: Attack, path: str, body: dict[str, Any]) -> None:
    status, told = attack.ask(Request("POST", path, {"Content-Type": "application/json"}, json.dumps(body).encode()))
    assert status == 201, told


def _canaries_now(attack: Attack) -> dict[str, Any]:
    found = json.loads(attack.get(f"/api/v1/namespaces/{CANARIES}/configmaps")[1])
    return {item["metadata"]["name"]: item for item in found["items"]}


def _everything(attack: Attack) -> dict[str, Any]:
    """Every object of the attacked namespace, by kind and name."""
    found = {}
    for plural in ("configmaps", "pods", "secrets", "services", "events"):
        status, body = attack.get(f"/api/v1/namespaces/{SPACE}/{plural}")
        listed = json.loads(body)
        head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        for item in listed["items"] if status == 200 else ():
            found[f"{plural}/{item['metadata']['name']}"] = {**head, **item}
    return found


def _recovered(directory: Path, listed: dict[str, Any]) -> list[str]:
    """What is on disk is what was answered."""

    async def read() -> dict[str, Any]:
        store = Store.open(directory / "cluster.db")
        from rowlock import kinds

        try:
            rows = [(k, o) for k in kinds.KINDS for o in store.view.all(k, SPACE if k.namespaced else "")]
            return {f"{k.plural}/{o['metadata']['name']}": o for k, o in rows if k.namespaced}
        finally:
            await store.close()

    kept = asyncio.run(read())
    return [
        f"afterwards: {key} is not on disk as it was answered" for key, obj in listed.items() if kept.get(key) != obj
    ]
