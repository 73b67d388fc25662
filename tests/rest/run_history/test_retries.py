"""The server judges each failure of a job once, by its root cause, and ends the job if it is not to be retried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from rowlock import objects
from rowlock.api import LogOptions
from rowlock.archive.records import RunRecord
from rowlock.diagnosis.root_cause import RankFailure
from rowlock.diagnosis.tracebacks import LoggedError
from rowlock.errors import Unavailable
from rowlock.objects import Object
from rowlock.rest.run_history import retries
from rowlock.rest.run_history.retries import Retries
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.workloads.run_options.retries import DECIDED_ANNOTATION, RETRY_ANNOTATION, decided_of

LOST_PEER = LoggedError("RuntimeError", "Connection closed by peer", secondary=True)
NO_MODULE = LoggedError("ModuleNotFoundError", "No module named 'x'")


def failed(rank: int = 0, run: int = 0, *, started: float = 0.0, finished: float = 10.0, **more: Any) -> RankFailure:
    return RankFailure(
        f"rank {rank}", f"train-worker-{rank}", "n", more.pop("code", 1), started, finished, run=run, **more
    )


class Server:
    """A job, what is known of its failures, and the patches of the judge."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rules: str, limit: int = 6) -> None:
        for name in ("_FIRST_LOOK", "_NEXT_LOOK", "_RETRY"):
            monkeypatch.setattr(retries, name, 0.001)
        notes = {REQUEST_ANNOTATION: "{}"} | ({RETRY_ANNOTATION: f"[{', '.join(rules)}]"} if rules else {})
        meta = {"name": "train", "namespace": "a", "uid": "u", "annotations": notes}
        spec = {"runPolicy": {"backoffLimit": limit}}
        self._job: Object = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
        self.failures: list[RankFailure] = []
        self.text: list[bytes] = []
        self.asked: list[LogOptions] = []
        self.patches: list[Object] = []
        self.diagnoses, self.outages = 0, 0
        self.judge = Retries(cast("Any", self), cast("Any", self), self.diagnose)

    async def diagnose(self, job: Object) -> dict[str, Any]:
        self.diagnoses += 1
        return {"incidents": [{"deaths": [one.to_dict() for one in self.failures]}]}

    async def patch(self, kind: Any, namespace: str, name: str, patch: Object, **_: Any) -> None:
        if self.outages:
            self.outages -= 1
            raise Unavailable("away")
        self.patches.append(patch)
        meta = {
            **self._job["metadata"],
            "annotations": {**objects.annotations(self._job), **patch["metadata"]["annotations"]},
        }
        self._job = {**self._job, "metadata": meta, "spec": {**self._job["spec"], **patch.get("spec", {})}}

    async def log(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        self.asked.append(options)
        for piece in self.text:
            yield piece

    def own_pods(self, uid: str) -> list[Object]:
        return []

    def job(self, uid: str) -> Object:
        return self._job

    async def see(self, *failures: RankFailure, phase: str = "Running") -> None:
        """The recorder looks at the job when these have failed, too; wait until nothing is left to do."""
        self.failures += failures
        record = RunRecord("u", "id", "train", "a", "n", "p", "PyTorchJob", 0.0, phase=phase)
        notes = RunNotes(record, job=self._job)
        for one in self.failures:
            notes.failed_runs.setdefault(one.pod, {}).setdefault("main", {})[str(one.run)] = {}
        self.judge.consider(notes)
        while not self.judge._timers.are_idle:
            await asyncio.sleep(0.001)

    @property
    def sentence(self) -> str:
        return decided_of(self._job).sentence

    @property
    def is_stopped(self) -> bool:
        return "activeDeadlineSeconds" in self._job["spec"].get("runPolicy", {})


def play(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 200)

    asyncio.run(bounded())


def test_an_import_that_fails_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch)
        await server.see(failed(trouble=NO_MODULE))
        assert server.is_stopped and "an import that fails would fail again" in server.sentence
        await server.see(failed(run=1, started=12.0, finished=20.0, trouble=NO_MODULE))
        assert len(server.patches) == 1, "it is over"

    play(check)


def test_other_failures_of_a_job_without_rules_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch)
        await server.see(failed())
        assert not server.patches

    play(check)


@pytest.mark.parametrize("rules", [(), ('"exit:17:2"',)])
def test_a_run_that_began_and_ended_in_one_second_is_judged_once(
    monkeypatch: pytest.MonkeyPatch, rules: tuple[str, ...]
) -> None:
    """On a cluster, whose times are whole seconds, such a run stopped the server: it was judged again for ever."""

    async def check() -> None:
        server = Server(monkeypatch, *rules)
        await server.see(failed(started=10.0, finished=10.0, code=17))
        await server.see(failed(run=1, started=22.0, finished=22.0, code=17))
        assert server.sentence == ("Retry 2 of 2: --retry-on exit:17:2." if rules else "") and not server.is_stopped

    play(check)


def test_each_attempt_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that lost the first one end later; they are of the same attempt, also if they are seen later."""

    async def check() -> None:
        server = Server(monkeypatch, '"exit:17:2"')
        await server.see(failed(0, code=17))
        assert server.sentence == "Retry 1 of 2: --retry-on exit:17:2."
        await server.see(failed(1, started=0.5, finished=14.0, trouble=LOST_PEER))
        assert len(server.patches) == 1
        await server.see(failed(0, run=1, started=13.0, finished=20.0, code=17))
        assert server.sentence == "Retry 2 of 2: --retry-on exit:17:2." and not server.is_stopped
        await server.see(failed(0, run=2, started=23.0, finished=30.0, code=17))
        assert server.is_stopped and "used up" in server.sentence

    play(check)


def test_a_server_that_was_away_judges_all_that_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch, '"exit:17:2"')
        await server.see(*(failed(0, run=n, started=20.0 * n, finished=20.0 * n + 10, code=17) for n in range(2)))
        assert server.sentence == "Retry 2 of 2: --retry-on exit:17:2." and len(server.patches) == 1
        server.judge = Retries(cast("Any", server), cast("Any", server), server.diagnose)
        await server.see()
        assert len(server.patches) == 1, "a new server judges nothing twice"

    play(check)


def test_ranks_that_lost_a_peer_wait_for_the_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch, '"oom:2"')
        victim = failed(1, finished=9.0, trouble=LOST_PEER)
        cause = failed(0, reason="OOMKilled", code=137)
        diagnose = server.diagnose

        async def slow(job: Object) -> dict[str, Any]:
            if server.diagnoses == 1:
                server.failures.append(cause)
            return await diagnose(job)

        server.judge._diagnose = slow
        await server.see(victim)
        assert server.sentence == "Retry 1 of 2: --retry-on oom:2."

    play(check)


def test_who_never_says_why_lost_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch, '"nccl:2"')
        await server.see(failed(1, trouble=LOST_PEER))
        assert server.diagnoses == retries._LOOKS and server.sentence == "Retry 1 of 2: --retry-on nccl:2."

    play(check)


def test_a_job_that_is_told_to_end_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch, '"oom:2"')
        await server.see(failed(stopped=True, code=143))
        assert not server.patches

    play(check)


@pytest.mark.parametrize(("limit", "phase"), [(0, "Running"), (6, "Failed"), (6, "Completed")])
def test_what_is_not_started_again_is_not_judged(monkeypatch: pytest.MonkeyPatch, limit: int, phase: str) -> None:
    async def check() -> None:
        server = Server(monkeypatch, limit=limit)
        await server.see(failed(trouble=NO_MODULE), phase=phase)
        assert not server.diagnoses

    play(check)


def test_a_manifest_is_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch)
        del server._job["metadata"]["annotations"][REQUEST_ANNOTATION]
        await server.see(failed(trouble=NO_MODULE))
        assert not server.diagnoses

    play(check)


def test_a_cluster_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch)
        server.outages = 2
        await server.see(failed(trouble=NO_MODULE))
        assert server.is_stopped

    play(check)


def test_patterns_are_searched_at_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch, '"log:link*down:2"')
        server.text = [b"epoch 1\nlink 3 went ", b"down\n", b"x" * (900 << 10)]
        await server.see(failed())
        assert server.sentence == "Retry 1 of 2: --retry-on log:link*down:2."
        assert server.asked[0].tail == retries._LINES and not server.asked[0].previous

    play(check)


def test_only_the_job_has_the_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        server = Server(monkeypatch, '"exit:17"')
        await server.see(replace(failed(), code=17))
        assert set(server.patches[0]["metadata"]["annotations"]) == {DECIDED_ANNOTATION}
        assert server.patches[0]["metadata"]["uid"] == "u"

    play(check)


@pytest.mark.parametrize(
    ("failure", "causes"),
    [
        (failed(reason="OOMKilled", code=137), {"oom"}),
        (failed(trouble=LoggedError("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB")), {"oom"}),
        (failed(trouble=LoggedError("MemoryError", "")), {"oom"}),
        (failed(trouble=LoggedError("torch.distributed.DistBackendError", "NCCL error in: ...")), {"nccl"}),
        (failed(trouble=LOST_PEER), {"nccl"}),
        (failed(reason="PreemptionByScheduler"), {"preempted"}),
        (failed(reason="Evicted", message="The node was low on resource: memory."), {"node"}),
        (failed(reason="DeadlineExceeded"), set()),
        (failed(trouble=NO_MODULE), {"import-error"}),
        (failed(trouble=LoggedError("ImportError", "cannot import name 'x'")), {"import-error"}),
        (failed(trouble=LoggedError("ValueError", "bad")), set()),
        (failed(code=3), set()),
    ],
)
def test_the_cause_is_that_of_the_verdict(failure: RankFailure, causes: set[str]) -> None:
    assert retries.causes_of(failure) == causes
