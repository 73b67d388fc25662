"""Shapes of the newer kinds and faces: Jobs, JobSets, CronJobs, TrainJobs and runtimes; sweeps, notifications, limits of time, orders of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.hostile.limits.shots import MERGE, POD_SPEC, SPACE, Shot, Value, collection, small

from rowlock import kinds

PROJECT, PROJECT_SPACE = "default", "runai-default"
_RUNTIME_GROUP = kinds.TRAINING_RUNTIME.group
_SHARED_STEM = "rowlock.dev/"


def _large_spec(dice: Random) -> tuple[str, dict[str, Value]]:
    """(what is large, a pod's spec near what an object may have), for a container of the name that a runtime wants."""
    container: dict[str, Value] = {"name": "node", "image": "host", "command": ["true"]}
    spec: dict[str, Value] = {"restartPolicy": "Never", "containers": [container]}
    way = dice.choice(("variables", "ports", "volumes", "words", "containers"))
    if way == "variables":
        container["env"] = [{"name": f"V{n}", "value": "x" * 20} for n in range(10_000)]
    elif way == "ports":
        container["ports"] = [{"name": f"p{n}", "containerPort": 1 + n} for n in range(10_000)]
    elif way == "volumes":
        spec["volumes"] = [{"name": f"v{n}", "emptyDir": {}} for n in range(10_000)]
    elif way == "words":
        container["args"] = [f"w{n}" for n in range(60_000)]
    else:
        spec["containers"] = [container, *({"name": f"c{n}", "image": "host"} for n in range(5_000))]
    return way, spec


def train_jobs(dice: Random, name: str) -> Iterator[Shot]:
    """A runtime near its limit, a TrainJob of it with as many patches as may be, its label changed, suspended, resumed and deleted."""
    way, spec = _large_spec(dice)
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    replicated = {"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": {"spec": spec}}}}
    runtime = small(kinds.TRAINING_RUNTIME, name)
    runtime["spec"] = {
        "mlPolicy": dice.choice(({"numNodes": 2}, {"numNodes": 2, "torch": {}}, {"numNodes": 2, "jax": {}})),
        "template": {"spec": {"replicatedJobs": [replicated]}},
    }
    yield Shot(f"a runtime of many {way}", "POST", collection(kinds.TRAINING_RUNTIME), runtime)
    made = small(kinds.TRAIN_JOB, name)
    ref = {"apiGroup": _RUNTIME_GROUP, "kind": "TrainingRuntime", "name": name}
    patched = {"spec": {"template": {"spec": {"volumes": [{"name": f"w{n}", "emptyDir": {}} for n in range(100)]}}}}
    patch = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": patched}]}}}
    made["spec"] = {
        "runtimeRef": ref,
        "suspend": dice.random() < 0.3,
        "trainer": {
            "numNodes": dice.choice((1, 8, 40)),
            "env": [{"name": f"T{n}", "value": "x"} for n in range(120)],
        },
        "runtimePatches": [{"manager": f"m{n}.example.com/x", "trainingRuntimeSpec": patch} for n in range(16)],
    }
    at = f"{collection(kinds.TRAIN_JOB)}/{name}"
    yield Shot(f"a TrainJob of many {way}", "POST", collection(kinds.TRAIN_JOB), made)
    for suspend in (True, False):
        yield Shot(f"suspend={suspend} of a TrainJob of many {way}", "PATCH", at, {"spec": {"suspend": suspend}}, MERGE)
    yield Shot(f"a label of a TrainJob of many {way}", "PATCH", at, {"metadata": {"labels": {"a": "b"}}}, MERGE)
    for path in ("/api/v1/workloads", "/api/v1/runs", collection(kinds.JOB_SET), collection(kinds.POD)):
        yield Shot(f"{path} after a TrainJob of many {way}", "GET", path)
    yield Shot(f"delete a TrainJob of many {way}", "DELETE", at, {"propagationPolicy": "Background"})


def cron_jobs(dice: Random, name: str) -> Iterator[Shot]:
    """A CronJob near its limit, that is never or always due, and whose start was long ago."""
    way, spec = _large_spec(dice)
    made = small(kinds.CRON_JOB, name)
    made["spec"] = {
        "schedule": dice.choice(("* * * * *", "0 0 29 2 *", "0-59/1 0-23/1 1-31/1 1-12/1 0-6/1", ",".join(map(str, range(60))) + " * * * *")),
        "timeZone": dice.choice(("Etc/UTC", "Pacific/Apia")),
        "startingDeadlineSeconds": dice.choice((10, 2**53)),
        "concurrencyPolicy": dice.choice(("Allow", "Replace")),
        "successfulJobsHistoryLimit": 100_000,
        "jobTemplate": {"spec": {"parallelism": 4, "completions": 4, "template": {"spec": spec}}},
    }  # fmt: skip
    at = f"{collection(kinds.CRON_JOB)}/{name}"
    yield Shot(f"a CronJob of many {way}", "POST", collection(kinds.CRON_JOB), made)
    yield Shot("a CronJob's schedule", "PATCH", at, {"spec": {"schedule": "* * * * *"}}, MERGE)
    yield Shot(f"workloads after a CronJob of many {way}", "GET", "/api/v1/workloads")
    yield Shot(f"delete a CronJob of many {way}", "DELETE", at, {"propagationPolicy": "Background"})


def job_rules(dice: Random, name: str) -> Iterator[Shot]:
    """Jobs whose indexes and rules are many, and sets of many jobs that wait for each other."""
    job = small(kinds.BATCH_JOB, name)
    one = {"spec": {**POD_SPEC, "containers": [{"name": "main", "image": "host", "command": ["false"]}]}}
    rules = [
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [n * 250 + i + 1 for i in range(200)]}} for n in range(20)
    ]  # fmt: skip
    ranges = ",".join(str(n) for n in range(0, 20_000, 2))
    job["spec"] = {
        "completionMode": "Indexed", "completions": 20_000, "parallelism": 20, "backoffLimitPerIndex": 0, "maxFailedIndexes": 10_000,
        "podFailurePolicy": {"rules": rules}, "successPolicy": {"rules": [{"succeededIndexes": ranges, "succeededCount": 1}]}, "template": one,
    }  # fmt: skip
    yield Shot("a Job of 20,000 indexes", "POST", collection(kinds.BATCH_JOB), job)
    several = small(kinds.JOB_SET, name)
    count = dice.choice((20, 200))
    several["spec"] = {
        "replicatedJobs": [
            {
                "name": f"r{n}",
                "replicas": 2,
                "template": {"spec": {"template": {"spec": POD_SPEC}}},
                **({"dependsOn": [{"name": f"r{n - 1}", "status": "Complete"}]} if n else {}),
            }
            for n in range(count)
        ],
        "failurePolicy": {"maxRestarts": 3, "rules": [{"name": f"f{n}", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]} for n in range(1_000)]},
    }  # fmt: skip
    yield Shot(f"a JobSet of {count} jobs", "POST", collection(kinds.JOB_SET), several)
    for kind in (kinds.JOB_SET, kinds.BATCH_JOB):
        yield Shot(f"list of {kind.name}s", "GET", collection(kind))
        yield Shot(f"delete a {kind.name}", "DELETE", f"{collection(kind)}/{name}", {"propagationPolicy": "Background"})


def sub_groups(dice: Random, name: str) -> Iterator[Shot]:
    """A PodGroup of thousands of sub-groups: each below the one before, in a circle, or below none that there is."""
    way, count = dice.choice(("deep", "circle", "orphans", "flat")), 10_000
    parents: dict[str, Callable[[int], str]] = {
        "deep": lambda n: f"n{n - 1}" if n else "",
        "circle": lambda n: f"n{(n + 1) % count}",
        "orphans": lambda n: f"x{n}",
        "flat": lambda n: "",
    }
    groups = [{"name": f"n{n}", "minMember": 1, **({"parent": parent} if (parent := parents[way](n)) else {})} for n in range(count)]  # fmt: skip
    made = small(kinds.POD_GROUP, name)
    made["spec"]["subGroups"] = groups
    yield Shot(f"{count} sub-groups ({way})", "POST", collection(kinds.POD_GROUP), made)
    yield Shot("list of PodGroups", "GET", collection(kinds.POD_GROUP))


def sweeps(dice: Random, name: str) -> Iterator[Shot]:
    """Sweeps whose texts are near each limit, or stand for much more than they have; what they make; their lists and metrics."""
    way = dice.choice(
        ("ranges", "dots", "values", "narrow", "placeholders", "braces", "template", "template", "file", "wide")
    )
    spec: dict[str, Value] = {
        "image": "host",
        "distributedFramework": "PyTorch",
        "noWorkers": True,
        "command": "true {a}",
    }
    body: dict[str, Value] = {"name": name, "parameters": {"a": "1..8"}, "maxParallel": 8}
    if way == "ranges":
        body["parameters"] = {"a": "1..1000," * 300_000}
    elif way == "dots":
        body["parameters"] = {"a": "1..1" * 600_000 + "x"}
    elif way == "values":
        body |= {"search": "random", "samples": 200}
        body["parameters"] = {f"a{n or ''}": [f"{'x' * 60}{i}" for i in range(900)] for n in range(32)}
    elif way == "narrow":
        body |= {"search": "random", "samples": 1_000}
        body["parameters"] = {f"a{n or ''}": "uniform(1,1.000001)" for n in range(32)}
    elif way == "placeholders":
        body["parameters"] = {"a": ["x" * 999 + str(n) for n in range(9)]}
        spec["command"] = ["echo", *["{a}"] * dice.choice((200, 1_000, 200_000))]
    elif way == "braces":
        spec["command"] = ["echo", dice.choice(("{", "}", "{{", "}}", "{a", "{a}")) * 60_000]
    elif way == "template":
        body["parameters"] = {"a": "1..40"}
        body["maxParallel"] = 40
        spec["environmentVariables"] = [{"name": f"V{n}", "value": "x" * 50} for n in range(2_200)]
    elif way == "file":
        body["file"] = dice.choice(("parameters: {b: [", "- ", "a: 1\n", "parameters: {b: 1}\n#")) * 12_000
    else:
        body["parameters"] = {"a": "1..1000", **{f"b{n}": ["x" * 1_000] for n in range(31)}}
        body["maxParallel"] = 1
    body["workload"] = {"projectId": PROJECT, "spec": spec}
    yield Shot(f"a sweep near its limit ({way})", "POST", "/api/v1/sweeps", body, names_id=True)
    config_map = f"{collection(kinds.CONFIG_MAP, PROJECT_SPACE)}/sweep-{name}"
    for path in ("/api/v1/sweeps", "/api/v1/sweeps/{id}", "/api/v1/sweeps/{id}?metric=loss", "/api/v1/workloads"):
        yield Shot(f"{path} after a sweep ({way})", "GET", path)
    notes = {"metadata": {"annotations": {"rowlock.dev/sweep-begun": "9" * 200_000, "a": "b"}}}
    yield Shot(f"annotations of a sweep ({way})", "PATCH", config_map, notes, MERGE)
    yield Shot(f"stop a sweep ({way})", "POST", "/api/v1/sweeps/{id}/stop")
    yield Shot(f"delete a sweep ({way})", "DELETE", "/api/v1/sweeps/{id}")


def false_sweeps(dice: Random, name: str) -> Iterator[Shot]:
    """ConfigMaps that say that they are sweeps, and a change of rights, after which all are looked at."""
    for n in range(12):
        made = small(kinds.CONFIG_MAP, f"sweep-{name}-{n}")
        made["metadata"]["labels"] = {"rowlock.dev/sweep": f"{name}-{n}", "rowlock.dev/workload-id": "1"}
        made["data"] = {"sweep.json": dice.choice(("[", '{"format":1,', "9", '"')) * 200_000, "seal": "0" * 300_000}
        yield Shot("a false sweep", "POST", collection(kinds.CONFIG_MAP), made)
    yield Shot("a binding after false sweeps", "POST", collection(kinds.ROLE_BINDING), small(kinds.ROLE_BINDING, name))
    yield Shot("sweeps after false ones", "GET", "/api/v1/sweeps")


def notifications(dice: Random, name: str) -> Iterator[Shot]:
    """Jobs that tell what happens to them to addresses that answer nothing, with as much as may be said; tests of odd addresses."""
    addresses = (
        "http://127.0.0.1:1/",
        "http://0.0.0.0/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://localhost:1/" + "a" * 1_900,
    )
    for address in addresses:
        body: dict[str, Value] = {"projectId": PROJECT, "notify": {"url": address}}
        yield Shot("a test of an address of this machine", "POST", "/api/v1/notify/test", body)
    many = {"url": "http://" + "a" * 2_000_000, "on": ["failed"] * 100_000, **{f"f{n}": 1 for n in range(20_000)}}
    yield Shot("a test with many fields", "POST", "/api/v1/notify/test", {"projectId": PROJECT, "notify": many})
    spec: dict[str, Value] = {"image": "host", "command": "true", "distributedFramework": "PyTorch", "noWorkers": True}
    spec["environmentVariables"] = [{"name": f"V{n}", "value": "x" * 90} for n in range(1_600)]
    job = {"name": name, "projectId": PROJECT, "spec": spec, "notify": {"url": "http://127.0.0.1:1/", "key": "k" * 256}}
    yield Shot("a job that tells", "POST", "/api/v1/workloads/distributed", job)
    at = f"{collection(kinds.PYTORCHJOB, PROJECT_SPACE)}/{name}"
    for key in ("notified", "notify-failed", "notify"):
        note = {f"{_SHARED_STEM}{key}": dice.choice(("a " * 100_000, "9" * 200_000))}
        yield Shot(f"{key} of a job that tells", "PATCH", at, {"metadata": {"annotations": note}}, MERGE)
    for n in range(4):
        event = {
            "metadata": {"name": f"{name}-{n}", "namespace": PROJECT_SPACE}, "reason": "JobHangs", "message": "<!channel> " * 90_000,
            "involvedObject": {"kind": "PyTorchJob", "name": name, "namespace": PROJECT_SPACE, "uid": "x"},
        }  # fmt: skip
        yield Shot("an Event that may be told", "POST", f"/api/v1/namespaces/{PROJECT_SPACE}/events", event)
    yield Shot("delete a job that tells", "DELETE", at, {"propagationPolicy": "Background"})


def orders(dice: Random, name: str) -> Iterator[Shot]:
    """Jobs that wait for a time, or for others by annotations near their limit; limits of time; one that ends meanwhile."""
    spec: dict[str, Value] = {"image": "host", "command": "true", "distributedFramework": "PyTorch", "noWorkers": True}
    body: dict[str, Value] = {"name": name, "projectId": PROJECT, "spec": spec}
    odd: tuple[dict[str, Value], ...] = (
        {"after": [{"job": f"j{n}"} for n in range(20_000)]},
        {"after": [{"job": "x" * 1_000_000}]},
        {"startAfter": "9" * 1_000_000},
        {"startAfter": "9999-12-31T23:59:59Z", "maxTimeSeconds": 2**53},
        {"maxTimeSeconds": 10**400},
        {"spec": {**spec, "terminationGracePeriodSeconds": 2**62}},
    )
    for n, options in enumerate(odd):
        yield Shot(
            f"a submit with odd {', '.join(options)}",
            "POST",
            "/api/v1/workloads/distributed",
            {**body, "name": f"{name}-{n}", **options},
        )
    for n in range(12):
        made = small(kinds.PYTORCHJOB, f"{name}-w{n}")
        key = dice.choice(("after", "start-after", "after-failed", "max-time", "ended-because"))
        text = dice.choice(("a/b " * 60_000, "a/b/succeeded " * 17_000, "/" * 250_000, "9" * 250_000))
        made["metadata"]["annotations"] = {f"{_SHARED_STEM}{key}": text, f"{_SHARED_STEM}after": "a/b " * 2_000}
        yield Shot(f"a job that waits, with {key}", "POST", collection(kinds.PYTORCHJOB), made)
    yield Shot("a job that ends", "POST", "/api/v1/workloads/distributed", {**body, "name": f"{name}-e"})
    yield Shot("workloads after jobs that wait", "GET", "/api/v1/workloads")
    for n in range(12):
        at = f"{collection(kinds.PYTORCHJOB)}/{name}-w{n}"
        yield Shot("delete a job that waits", "DELETE", at, {"propagationPolicy": "Background"})


def faces(dice: Random, name: str) -> Iterator[Shot]:
    """Routes of the server that look through everything, while there is much of it."""
    made = small(kinds.POD, name)
    made["spec"] = {**POD_SPEC, "containers": [{"name": "main", "image": "host", "command": ["sleep", "2"]}]}
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": f"n{n}", "uid": f"u{n}", "controller": n == 0} for n in range(2_000)
    ]  # fmt: skip
    yield Shot("a pod of 2,000 owners", "POST", collection(kinds.POD), made)
    for path in ("/api/v1/drain/pods", "/api/v1/workloads?limit=500", "/api/v1/runs?limit=500", "/api/v1/scheduler/snapshot", "/api/v1/scheduler/cards", f"/api/v1/namespaces/{SPACE}/events"):  # fmt: skip
        yield Shot(f"{path} beside odd objects", "GET", path)


NEWER: tuple[Callable[[Random, str], Iterator[Shot]], ...] = (
    train_jobs, cron_jobs, job_rules, sub_groups, sweeps, false_sweeps, notifications, orders, faces,
)  # fmt: skip
