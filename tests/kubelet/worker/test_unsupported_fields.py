"""What a pod asks for and does not get is said; by equality."""

from __future__ import annotations

import pytest

from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.unsupported import pod_warnings, unapplied_warnings
from rowlock.objects import Object

NOT_APPLIED = "is not applied ({}): programs run as the user who started the cluster"
ROOT, SOMEBODY = 0, 501


@pytest.mark.parametrize(
    ("me", "of_pod", "of_container", "said"),
    [
        (SOMEBODY, {}, {}, []),
        (SOMEBODY, {"runAsUser": None, "supplementalGroups": []}, {"privileged": False}, []),
        (SOMEBODY, {"runAsUser": 1000, "fsGroup": 2000}, {}, ["securityContext of the pod " + NOT_APPLIED.format("fsGroup, runAsUser")]),
        (ROOT, {"runAsUser": 1000, "fsGroup": 2000}, {"allowPrivilegeEscalation": False}, []),
        (SOMEBODY, {}, {"privileged": True}, ["securityContext of main " + NOT_APPLIED.format("privileged")]),
        (ROOT, {}, {"privileged": True}, ["securityContext of main " + NOT_APPLIED.format("privileged")]),
        (SOMEBODY, {"runAsUser": 0}, {}, ["securityContext of the pod " + NOT_APPLIED.format("runAsUser")]),
        (SOMEBODY, {"runAsUser": SOMEBODY}, {}, []),
    ],
)  # fmt: skip
def test_rights(me: int, of_pod: Object, of_container: Object, said: list[str]) -> None:
    assert unapplied_warnings(of_pod, "the pod", me) + unapplied_warnings(of_container, "main", me) == said


def test_those_of_the_pod_and_of_each_container_are_read() -> None:
    container = {"name": "main", "image": "host", "securityContext": {"seLinuxOptions": {"level": "s0"}}}
    made = {"spec": {"securityContext": {"seLinuxOptions": {"level": "s1"}}, "containers": [container]}}
    owners = [text.partition(" is not")[0] for text in pod_warnings(parse_pod_spec(made))]
    assert owners == ["securityContext of the pod", "securityContext of main"]
