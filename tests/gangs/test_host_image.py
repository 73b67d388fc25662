"""The name of a machine's own programs is known to rowlock's nodes only, and a job of another cluster that has it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.gangs.host_image import host_image_cause, is_host_image
from rowlock.objects import Object

REAL = {"metadata": {"name": "n", "annotations": {"node.alpha.kubernetes.io/ttl": "0"}}}
OURS = {"metadata": {"name": "m", "annotations": {"rowlock.dev/network": "rewrite"}}}


@pytest.mark.parametrize(
    ("name", "is_host"),
    [
        ("rowlock.dev/host", True),
        (" /rowlock.dev/host:2 ", True),
        ("Rowlock.dev/Host:latest", True),
        ("host", True),
        ("docker.io/library/host:1", True),
        ("localhost/host:1", False),
        ("rowlock.dev/doctor", False),
        ("registry.example:5000/host", False),
        ("hosted", False),
        ("", False),
    ],
)
def test_names_of_the_machines_programs(name: str, is_host: bool) -> None:
    assert is_host_image(name) is is_host


def pods(**fields: Any) -> Object:
    container = {"name": "c", "image": "registry.example/torch:1"}
    return {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container], **fields}}}}}}


@pytest.mark.parametrize(
    "obj",
    [
        pods(containers=[{"name": "c", "image": "rowlock.dev/host"}]),
        pods(initContainers=[{"name": "fetch", "image": "rowlock.dev/host:1"}]),
        {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"image": "host"}]}}}}}},
        {"spec": {"replicatedJobs": [{"template": {"spec": {"template": pods(containers=[{"image": "host"}])}}}]}},
        {"spec": {"trainer": {"image": "rowlock.dev/host"}}},
    ],
)
def test_a_job_that_names_it_is_refused_where_no_node_is_ours(obj: Object) -> None:
    for nodes in ((), (REAL,)):
        cause = host_image_cause(obj, nodes)
        assert (
            cause is not None
            and cause.field == "spec.image"
            and "Name an image that holds the program" in cause.message
        )
    assert host_image_cause(obj, (REAL, OURS)) is None


@pytest.mark.parametrize(
    "obj",
    [
        pods(),
        pods(volumes=[{"name": "v", "rbd": {"image": "host", "monitors": []}}]),
        pods(containers="host", initContainers=[None, "host", {"image": 3}]),
        {"spec": None},
        {},
    ],
)
def test_other_jobs_and_malformed_ones_are_not_its_business(obj: Object) -> None:
    assert host_image_cause(obj, (REAL,)) is None


def test_a_hostile_depth_is_read() -> None:
    deep: Any = {"containers": [{"image": "host"}]}
    for _ in range(5_000):
        deep = [deep]
    assert host_image_cause({"spec": deep}, ()) is not None
