"""A followed log whose streams are cut at bad places, over HTTP: it goes on where it was, or ends with an error, whatever the pod does meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.kube.scripted import Answer, Asked, Scripted, refusal

from rowlock import objects
from rowlock.api import LogOptions
from rowlock.errors import ApiError, Forbidden, NotFound, Unavailable
from rowlock.kube.client import Kube
from rowlock.kube.followed_logs import follower
from rowlock.kube.followed_logs.follower import ContainerRun, next_part
from rowlock.kube.rate_limit import Limits
from rowlock.objects import Object

FOLLOW = LogOptions(follow=True, owner="job-1")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        ("_FIRST_PAUSE_S", 0.001),
        ("_LONGEST_PAUSE_S", 0.002),
        ("STATUS_LAG_S", 0.0),
        ("_GAP_S", 3600.0),  # a busy machine must not take the log of the next run for a rotated one
    ):
        monkeypatch.setattr(follower, name, seconds)


def lines_of(run: str, count: int, second: int = 0) -> list[bytes]:
    return [
        f"2026-11-30T04:{second + n // 6:02}:00.{n % 3}Z {run} line {n} {'=' * (n % 40)}\n".encode()
        for n in range(count)
    ]


def pod_of(state: str = "running", restarts: int = 0, uid: str = "pod-1") -> Object:
    status: dict[str, Any] = {"name": "pytorch", "restartCount": restarts, "containerID": f"c://{restarts}"}
    ended = {"exitCode": 0, "startedAt": "2026-11-30T04:00:00Z", "finishedAt": "2026-11-30T04:10:00Z"}
    status["state"] = {"terminated": ended} if state == "ended" else {"running": {"startedAt": "2026-11-30T04:00:00Z"}}
    if restarts:
        status["lastState"] = {"terminated": {**ended, "containerID": f"c://{restarts - 1}"}}
    meta = {"name": "p", "namespace": "a", "uid": uid}
    return {"metadata": meta, "spec": {"containers": [{"name": "pytorch"}]}, "status": {"containerStatuses": [status]}}


@dataclass
class PlayedPod:
    """A pod and the logs that its node has. Each answer to a request for a log is cut at a place that is drawn, until `cuts` are used up;
    `then` changes the world after so many requests."""

    logs: list[list[bytes]]
    draw: random.Random
    cuts: int = 0
    pod: Object | None = field(default_factory=pod_of)
    then: dict[int, Callable[[PlayedPod], None]] = field(default_factory=dict)
    cleanly: bool = False
    """A stream that is cut looks complete, as it does when a kubelet is restarted."""
    asked: list[dict[str, str]] = field(default_factory=list)

    def answer(self, asked: Asked) -> Answer:
        if not asked.path.endswith("/log"):
            return Answer(body=self.pod) if self.pod else Answer(404, refusal(404, "NotFound", name="p"))
        self.asked.append(asked.query)
        if change := self.then.get(len(self.asked)):
            change(self)
        if self.pod is None:
            return Answer(404, refusal(404, "NotFound", name="p"))
        lines = self.logs[-2] if asked.query.get("previous") else self.logs[-1]
        if since := asked.query.get("sinceTime"):
            lines = [line for line in lines if line[:16] >= since.encode()[:16]]
        text = b"".join(lines)
        if self.cuts <= 0 or (self.cleanly and not asked.query.get("follow")):
            return Answer(lines=self._pieces(text))
        self.cuts -= 1
        return Answer(lines=self._pieces(text[: self.draw.randrange(len(text) + 1)]), cut=not self.cleanly)

    def _pieces(self, text: bytes) -> list[bytes]:
        pieces = []
        while text:
            size = self.draw.randrange(1, 300)
            pieces.append(text[:size])
            text = text[size:]
        return pieces

    def end(self) -> None:
        self.pod = pod_of("ended")

    def restart(self) -> None:
        self.logs.append(lines_of("next", 5, second=40))
        self.pod = pod_of(restarts=1)

    def vanish(self) -> None:
        self.pod = None


def run(scenario: Coroutine[Any, Any, bytes]) -> bytes:
    return asyncio.run(asyncio.wait_for(scenario, 200))


async def follow(
    played: PlayedPod, where: Path, options: LogOptions = FOLLOW, kept: list[bytes] | None = None
) -> bytes:
    """What a reader gets, who begins while the pod is as `played.pod` says."""
    shown = [played.pod] if played.pod else []

    async def kept_log(namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        if kept is None:
            raise NotFound("none is kept")
        for line in kept:
            if options.since is None or objects.seconds(line.partition(b" ")[0].decode()) >= options.since:
                yield line

    read = b""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Scripted(played.answer).running())
        limits = Limits(qps=0, max_tries=1)
        kube = await stack.enter_async_context(Kube.connect(server.kubeconfig(where), limits=limits))
        kube.pods_of, kube.kept_log = lambda owner: shown if owner == "job-1" else [], kept_log
        async for chunk in kube.log("a", "p", options):
            read += chunk
    return read


def texts(lines: list[bytes]) -> bytes:
    return b"".join(line.partition(b" ")[2] for line in lines)


@pytest.mark.parametrize("cleanly", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_a_log_that_is_cut_and_whose_pod_ends_is_whole(tmp_path: Path, seed: int, *, cleanly: bool) -> None:
    lines, draw = lines_of("one", 60), random.Random(seed)
    played = PlayedPod([lines], draw, cuts=4, then={draw.randrange(1, 6): PlayedPod.end}, cleanly=cleanly)
    played.then[8] = PlayedPod.end
    assert run(follow(played, tmp_path)) == texts(lines)


@pytest.mark.parametrize("seed", range(15))
def test_the_rest_of_a_run_is_its_own_when_the_container_was_restarted(tmp_path: Path, seed: int) -> None:
    lines, draw = lines_of("one", 60), random.Random(seed)
    played = PlayedPod([lines], draw, cuts=4, then={draw.randrange(2, 6): PlayedPod.restart}, cleanly=seed % 2 == 0)
    assert run(follow(played, tmp_path)) == texts(lines)
    assert played.asked[-1].get("previous") == "true"


def test_a_status_that_comes_late_mixes_no_two_runs(tmp_path: Path) -> None:
    """The node has started the next run, and the API server does not say so yet."""

    def restart_unseen(played: PlayedPod) -> None:
        played.logs.append(lines_of("next", 5, second=40))

    def show(played: PlayedPod) -> None:
        played.pod = pod_of(restarts=1)

    lines = lines_of("one", 60)
    played = PlayedPod([lines], random.Random(3), cuts=1, then={2: restart_unseen, 4: show})
    assert run(follow(played, tmp_path)) == texts(lines)


@pytest.mark.parametrize("seed", range(10))
def test_the_end_of_a_pod_that_was_deleted_is_in_the_archive(tmp_path: Path, seed: int) -> None:
    lines = lines_of("one", 60)
    played = PlayedPod([lines], random.Random(seed), cuts=1, then={2: PlayedPod.vanish})
    assert run(follow(played, tmp_path, kept=lines)) == texts(lines)


def test_a_log_whose_end_nobody_has_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "REST_S", 0.05)
    played = PlayedPod([lines_of("one", 60)], random.Random(5), cuts=1, then={2: PlayedPod.vanish})
    with pytest.raises(Unavailable, match=r"the log of p broke off .* its pod is gone, and its end is not kept"):
        run(follow(played, tmp_path))


def test_an_archive_that_has_only_an_earlier_pod_of_that_name_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "REST_S", 0.05)
    earlier = [b"2026-11-29T04:00:00.1Z of yesterday\n"]
    played = PlayedPod([lines_of("one", 60)], random.Random(5), cuts=1, then={2: PlayedPod.vanish})
    with pytest.raises(Unavailable, match="its end is not kept"):
        run(follow(played, tmp_path, kept=earlier))


def test_a_rotated_log_says_that_lines_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_GAP_S", 0.05)

    def rotate(played: PlayedPod) -> None:
        played.logs[-1] = lines_of("later", 6, second=50)

    played = PlayedPod(
        [lines_of("one", 60)], random.Random(5), cuts=1, then={2: rotate, 60: PlayedPod.end, 90: PlayedPod.end}
    )
    read = run(follow(played, tmp_path))
    said = b"rowlock: the log was rotated while it could not be read: lines are missing here\n"
    assert read.count(said) == 1 and read.endswith(said + texts(lines_of("later", 6)))


def test_a_cluster_that_answers_no_more_ends_the_log_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "NOTICE_S", 0.0)
    monkeypatch.setattr(follower, "GIVE_UP_S", 0.2)

    async def scenario() -> bytes:
        lines = lines_of("one", 6)
        server = Scripted(Answer(lines=lines, cut=True), Answer(cut=True))
        read = b""
        async with (
            server.running(),
            Kube.connect(server.kubeconfig(tmp_path), limits=Limits(qps=0, max_tries=1)) as kube,
        ):
            kube.pods_of = lambda owner: [pod_of()]
            with pytest.raises(Unavailable, match=r"the log of p broke off .* the cluster does not answer"):
                async for chunk in kube.log("a", "p", FOLLOW):
                    read += chunk
        notice = b"rowlock: the log of p could not be read for 0 s; it goes on here when it can\n"
        assert read == texts(lines) + notice
        return read

    run(scenario())


def test_what_refuses_the_first_request_is_the_readers_to_know(tmp_path: Path) -> None:
    async def scenario(answer: Answer) -> bytes:
        server = Scripted(answer)
        async with (
            server.running(),
            Kube.connect(server.kubeconfig(tmp_path), limits=Limits(qps=0, max_tries=1)) as kube,
        ):
            kube.pods_of = lambda owner: [pod_of()]
            return b"".join([chunk async for chunk in kube.log("a", "p", FOLLOW)])

    with pytest.raises(Forbidden):
        run(scenario(Answer(403, refusal(403, "Forbidden"))))
    with pytest.raises(NotFound):
        run(scenario(Answer(404, refusal(404, "NotFound", name="p"))))
    with pytest.raises(ApiError, match="dial tcp"):
        run(scenario(Answer(500, refusal(500, "InternalError", "dial tcp 10.0.0.1:10250: connection refused"))))


@pytest.mark.parametrize("seed", range(5))
def test_stamps_and_a_limit_of_bytes_are_as_in_one_stream(tmp_path: Path, seed: int) -> None:
    lines, draw = lines_of("one", 60), random.Random(seed)
    options = replace(FOLLOW, timestamps=True, limit_bytes=1500)
    played = PlayedPod([lines], draw, cuts=3, then={6: PlayedPod.end})
    assert run(follow(played, tmp_path, options)) == b"".join(lines)[:1500]
    assert all(asked["timestamps"] == "true" and "limitBytes" not in asked for asked in played.asked)


def test_a_log_for_no_job_is_one_stream(tmp_path: Path) -> None:
    """The archive's followers go on by themselves, from what they have on disk."""
    played = PlayedPod([lines_of("one", 60)], random.Random(1), cuts=1)
    with pytest.raises(Unavailable):
        run(follow(played, tmp_path, LogOptions(follow=True)))
    assert len(played.asked) == 1


def test_where_the_rest_is() -> None:
    first = ContainerRun("pod-1", "pytorch", 0)
    assert next_part(pod_of(), first) == "follow"
    assert next_part(pod_of("ended"), first) == "current"
    assert next_part(pod_of(restarts=1), first) == "previous"
    assert next_part(pod_of(restarts=2), first) == "archive"
    assert next_part(pod_of(uid="pod-2"), first) == "archive"
    assert next_part(None, first) == "archive"
    assert ContainerRun.of(pod_of(restarts=1), "") == ContainerRun("pod-1", "pytorch", 1)
    assert ContainerRun.of(pod_of(), "other") == ContainerRun("pod-1", "other", 0)
