"""Jobs, CronJobs, JobSets and TrainJobs that are almost right: admission refuses them in words, or the controllers can live with them.

The requests of `requests.py` are seldom near enough to a job that a controller would begin with it. These are whole jobs with one to three
things replaced.
"""

from __future__ import annotations

import asyncio
import copy
import time
from functools import partial
from random import Random
from typing import Any

from tests.fuzz.values import NUMBERS, TEXTS, junk

from rowlock.api import Controller
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.patch.patches import Patcher
from rowlock.controllers.writer import execute_write, plan_steps
from rowlock.errors import ApiError
from rowlock.kinds import BATCH_JOB, CRON_JOB, JOB_SET, TRAIN_JOB, Kind
from rowlock.objects import Object, key
from rowlock.storage import bootstrap
from rowlock.storage.store import Store, no_logs
from rowlock.training.batch_job.controller import BatchJobController
from rowlock.training.cron_job.controller import CronJobController
from rowlock.training.jobset.controller import JobSetController
from rowlock.training.jobset.gangs import JobSetGroupController
from rowlock.training.trainjob.controller import TrainJobController
from rowlock.webhooks.trainer_webhooks import TrainerWebhooks

NOW, LOOKS, SLOW_S = 1_800_000_000.0, 3, 5.0
"""The time; how often each controller looks; seconds of CPU after which something is too slow."""
POD = {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "host", "env": [{"name": "A", "value": "b"}]}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
}
JOB = {
    "parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1, "maxFailedIndexes": 1,
    "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 60, "podReplacementPolicy": "Failed", "suspend": False,
    "podFailurePolicy": {"rules": [
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3, 7]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]},
    "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
    "template": {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec": POD},
}  # fmt: skip
SPECS: dict[Kind, Object] = {
    BATCH_JOB: JOB,
    CRON_JOB: {
        "schedule": "*/5 9-17 * * mon-fri", "timeZone": "Europe/Berlin", "startingDeadlineSeconds": 60, "concurrencyPolicy": "Replace",
        "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1, "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": JOB},
    },
    JOB_SET: {
        "replicatedJobs": [
            {"name": "a", "replicas": 2, "groupName": "g", "template": {"metadata": {"labels": {"a": "b"}}, "spec": JOB}},
            {"name": "b", "dependsOn": [{"name": "a", "status": "Ready"}], "template": {"spec": JOB}},
        ],
        "failurePolicy": {"maxRestarts": 1, "rules": [
            {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"],
             "onJobFailureMessagePatterns": ["a+"], "targetReplicatedJobs": ["a"]},
        ]},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["a"]}, "network": {"subdomain": "s"},
        "coordinator": {"replicatedJob": "a", "jobIndex": 0, "podIndex": 0}, "ttlSecondsAfterFinished": 60, "suspend": False,
    },
    TRAIN_JOB: {
        "runtimeRef": {"name": "torch-distributed"}, "suspend": False, "activeDeadlineSeconds": 60,
        "trainer": {
            "numNodes": 2, "numProcPerNode": 2, "image": "host", "command": ["true"], "args": ["x"],
            "env": [{"name": "A", "value": "b"}], "resourcesPerNode": {"limits": {"cpu": "1"}},
        },
        "runtimePatches": [{"manager": "tests.rowlock.dev/me", "trainingRuntimeSpec": {"template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {
                "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            }}}}}]},
        }}}],
    },
}  # fmt: skip
RUNTIMES = (
    "torch-distributed",
    "jax-distributed",
    "xgboost-distributed",
    "deepspeed-distributed",
    "torchtune-llama3.2-1b",
)


def draw(random: Random) -> tuple[Kind, Object]:
    """A job with one to three wrong or unusual things in its spec."""
    kind = random.choice(list(SPECS))
    spec: Any = copy.deepcopy(SPECS[kind])
    if kind is TRAIN_JOB:
        spec["runtimeRef"]["name"] = random.choice(RUNTIMES)
    for _ in range(random.choice((1, 1, 2, 3))):
        spec = _bent(random, spec)
    return kind, {**head(kind), "metadata": {"name": "j", "namespace": bootstrap.DEFAULT_NAME}, "spec": spec}


def head(kind: Kind) -> dict[str, str]:
    return {"apiVersion": kind.api_version, "kind": kind.name}


def _bent(random: Random, value: Any) -> Any:
    """The value with one thing in it replaced, removed or doubled."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        at = random.choice(list(value))
        return {**value, at: _bent(random, value[at])}
    if isinstance(value, list) and value and random.random() < 0.7:
        place = random.randrange(len(value))
        return [*value[:place], _bent(random, value[place]), *value[place + 1 :]]
    if random.random() < 0.3:
        return random.choice((junk(random), random.choice(TEXTS), random.choice(NUMBERS)))
    return _like(random, value)


def _like(random: Random, value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return random.choice((0, 1, 3, 7, -1, 2**31 - 1))
        case str():
            return random.choice(("a", "b", "x", "", value * 2, "Never", "All", "Ready", *random.sample(TEXTS, 1)))
        case list() if value:
            return random.choice(([*value, value[0]], value[1:], [], value[::-1]))
        case dict() if value:
            gone = random.choice(list(value))
            return {key: one for key, one in value.items() if key != gone}
    return value


async def followed(kind: Kind, obj: Object) -> bool:
    """Create the object and let the controllers look at it. Whether it was admitted. Raises what a controller raises."""
    admission = partial(AdmissionChain, webhooks=TrainerWebhooks())
    store = Store.open(None, admission=admission, patches=Patcher(), log_source=no_logs, clock=lambda: NOW)
    try:
        for seed, made in bootstrap.initial_objects():
            await store.create(seed, made)
        try:
            await store.create(kind, obj)
        except ApiError as error:
            assert error.message, "a refusal without a sentence"
            return False
        controllers: tuple[tuple[Kind, Controller], ...] = (
            (CRON_JOB, CronJobController()),
            (TRAIN_JOB, TrainJobController(lambda: ("a2V5", "a2V5"))),
            (JOB_SET, JobSetController()),
            (JOB_SET, JobSetGroupController()),
            (BATCH_JOB, BatchJobController(declares_gangs=True)),
        )
        for look in range(LOOKS):
            for own, controller in controllers:
                for one in list(store.view.all(own)):
                    await _do(store, controller, one, NOW + 400 * look)
        return True
    finally:
        await store.close()


async def _do(store: Store, controller: Controller, obj: Object, now: float) -> None:
    for step in plan_steps(controller.decide(store.view, key(obj), now).writes)[1]:
        try:
            await execute_write(store, step.write)
        except ApiError:
            return  # what an API refuses ends a controller's turn


def play_at_random(seed: str, seconds: float, count: int = 10**9) -> tuple[dict[tuple[str, bool], int], list[str]]:
    """(how many of each kind were admitted and refused; findings, each with what repeats it)."""
    deadline, wrong, seen = time.monotonic() + seconds, list[str](), dict[tuple[str, bool], int]()
    for number in range(count):
        again, began = f"draw(Random('{seed}:{number}'))", time.thread_time()
        kind, obj = draw(Random(f"{seed}:{number}"))
        try:
            found = kind.name, asyncio.run(followed(kind, obj))
            seen[found] = seen.get(found, 0) + 1
        except Exception as error:  # noqa: BLE001  # that it may be anything is the point
            wrong.append(f"{kind.name}, {again}: {error!r}")
        if (took := time.thread_time() - began) > SLOW_S:
            wrong.append(f"{kind.name}, {again}: took {took:.1f} s")
        if time.monotonic() > deadline or len(wrong) > 50:
            break
    return seen, wrong
