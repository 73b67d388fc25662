"""What the server keeps of runs that tell something, and how many tests of an address wait."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from tests.rest.conftest import World

from rowlock.archive.records import PhaseStep, RunRecord
from rowlock.documents.web_address import WebAddress
from rowlock.rest.notifications.lanes import STALE, Delivery, Lanes
from rowlock.rest.notifications.notifier import Notifier
from rowlock.rest.notifications.settings import NotifySettings
from rowlock.rest.run_history.run_notes import RunNotes
from rowlock.workloads.run_options.notify import NOTIFIED_ANNOTATION

OPERATOR = WebAddress("https", "chat.example.com", 443, "/hook")


class Sent(Lanes):
    """Lanes that note what is put into them."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.messages: list[dict[str, Any]] = []

    def put(self, delivery: Delivery) -> str:
        self.messages.append(json.loads(delivery.message.body))
        return ""


def notes_of(number: int, now: float) -> RunNotes:
    """A run that has ended, with a job of about a megabyte."""
    record = RunRecord(f"u{number}", f"w{number}", f"job-{number}", "n", "nu", "p", "PyTorchJob", now - 10)
    record.phase, record.finished, record.verdict = "Completed", now, "It completed."
    record.body = {"job": "x" * 100_000}
    meta = {"name": f"job-{number}", "namespace": "n", "uid": f"u{number}"}
    notes = {NOTIFIED_ANNOTATION: "a " * 100_000, "large": "x" * 100_000}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {**meta, "annotations": notes}}
    job["spec"] = {"env": ["x" * 100] * 10_000}
    phases = [PhaseStep(now - 5, "Running"), PhaseStep(now, "Completed")]
    return RunNotes(record, phases=phases, job=job)


def kept_of(notifier: Notifier) -> list[Any]:
    return list(notifier._runs.values())


def test_of_a_run_that_has_ended_little_is_kept_and_that_not_for_ever() -> None:
    async def scenario() -> None:
        now, lanes = [1_000_000.0], Sent()
        notifier = Notifier(None, NotifySettings(address=OPERATOR), lambda: now[0], lanes)  # type: ignore[arg-type] # nothing is read
        work = asyncio.create_task(notifier.run())
        for number in range(50):
            notifier.consider(notes_of(number, now[0]), None)
        while len(lanes.messages) < 50:
            await asyncio.sleep(0)
        assert {one["job"] for one in lanes.messages} == {f"job-{number}" for number in range(50)}
        assert len(kept_of(notifier)) == 50
        assert max(len(json.dumps(run.job)) for run in kept_of(notifier)) < 10_000
        assert all(not run.record.body for run in kept_of(notifier))
        now[0] += STALE + 60
        for number in range(50, 70):
            notifier.consider(notes_of(number, now[0]), None)
        assert len(kept_of(notifier)) <= 20, "their end is no news any more"
        work.cancel()

    asyncio.run(scenario())


def test_tests_of_slow_addresses_wait_in_a_bounded_number(world: World) -> None:
    """A user who tries an address that does not answer two hundred times has two connections, and some that wait."""
    project = world.project()
    lanes = Lanes(lambda: 0.0)
    world.rest._context = replace(world.rest._context, lanes=lanes)
    body = {"projectId": project["id"], "notify": {"url": "http://127.0.0.1:1/"}}
    namespace = f"runai-{project['name']}"
    assert world.client.post("/api/v1/notify/test", json=body).status_code == 200

    async def take() -> list[asyncio.Task[None]]:
        async def hold() -> None:
            async with lanes.connection(namespace):
                await asyncio.Event().wait()

        held = [asyncio.create_task(hold()) for _ in range(10)]
        await asyncio.sleep(0)
        return held

    held = world.do(take)
    refused = world.client.post("/api/v1/notify/test", json=body)
    assert refused.status_code == 429 and "try again in half a minute" in refused.text, refused.text

    async def give_back() -> None:
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    world.do(give_back)
    assert world.client.post("/api/v1/notify/test", json=body).status_code == 200
