"""An API server that has just started does not know its roles yet: it forbids everything, and a moment later allows it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.kube.scripted import Answer, Asked, Scripted, refusal

from rowlock import kinds
from rowlock.errors import ApiError, Forbidden, Unavailable
from rowlock.kube import connection
from rowlock.kube.client import Kube
from rowlock.kube.rate_limit import Limits
from rowlock.objects import Object

POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "team"}}
REFUSED = Answer(403, refusal(403, "Forbidden", "pods is forbidden"))


def create(server: Scripted, where: Path, *, after_break: bool = True) -> Object | ApiError:
    """The answer to a create, on a connection that broke just before or never."""

    async def run() -> Object | ApiError:
        limits = Limits(qps=0, max_tries=2, watch_retry_seconds=0.0)
        async with server.running(), Kube.connect(server.kubeconfig(where), limits=limits) as kube:
            if after_break:
                with pytest.raises(Unavailable):
                    await kube.create(kinds.POD, POD)
            try:
                return await kube.create(kinds.POD, POD)
            except ApiError as error:
                return error

    return asyncio.run(run())


def test_a_refusal_right_after_a_restart_is_asked_about_again(tmp_path: Path) -> None:
    assert create(Scripted(Answer(cut=True), REFUSED, REFUSED, Answer(201, POD)), tmp_path) == POD
    server = Scripted(REFUSED)
    assert isinstance(create(server, tmp_path, after_break=False), Forbidden)
    assert len(server.asked) == 1


@pytest.mark.parametrize("says", [Answer(500, "[-]informer-sync failed"), REFUSED, Answer(cut=True)])
def test_while_it_is_not_ready_its_refusal_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Answer
) -> None:
    """A submit was forbidden for good, because the server took more than three seconds to read its roles."""
    monkeypatch.setattr(connection, "REFUSAL_PATIENCE_S", 0.0)
    answered = create(Scripted(Answer(cut=True), REFUSED, says), tmp_path)
    assert isinstance(answered, Unavailable)
    assert "try again in some seconds (pods is forbidden)" in answered.message


def test_once_it_is_ready_its_refusal_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have become ready after it refused, so it is asked once more."""
    monkeypatch.setattr(connection, "REFUSAL_PATIENCE_S", 0.0)

    def always(asked: Asked) -> Answer:
        return Answer(body={}) if asked.path == "/readyz" else REFUSED

    server = Scripted(Answer(cut=True), always)
    assert isinstance(create(server, tmp_path), Forbidden)
    assert [asked.path.rpartition("/")[2] for asked in server.asked] == ["pods", "pods", "readyz", "pods"]
    assert create(Scripted(Answer(cut=True), REFUSED, Answer(body={}), Answer(201, POD)), tmp_path) == POD
