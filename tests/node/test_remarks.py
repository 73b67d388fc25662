"""What a pod asks for and does not get is said; by equality."""

from __future__ import annotations

import pytest

from rowlock.cluster.node.pod_starting import remarks
from rowlock.objects import Object

NOT_APPLIED = "is not applied ({}): programs run as the user who started the cluster"


@pytest.mark.parametrize(
    ("of_pod", "of_container", "said"),
    [
        ({}, {}, []),
        ({"runAsUser": None, "supplementalGroups": []}, {"privileged": False}, []),
        ({"runAsUser": 1000, "fsGroup": 2000}, {}, ["securityContext of the pod " + NOT_APPLIED.format("fsGroup, runAsUser")]),
        ({}, {"privileged": True}, ["securityContext of main " + NOT_APPLIED.format("privileged")]),
        ({"runAsUser": 0}, {}, ["securityContext of the pod " + NOT_APPLIED.format("runAsUser")]),
    ],
)  # fmt: skip
def test_rights(of_pod: Object, of_container: Object, said: list[str]) -> None:
    container = {"name": "main", "image": "host", "securityContext": of_container}
    assert remarks({"spec": {"securityContext": of_pod, "containers": [container]}}) == said
