"""What a pod asks for and does not get is said; by equality."""

from __future__ import annotations

import pytest

from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.unsupported import security_context_warnings
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
    container = {"name": "main", "image": "host", "securityContext": of_container}
    pod_spec = parse_pod_spec({"spec": {"securityContext": of_pod, "containers": [container]}})
    assert security_context_warnings(pod_spec, me) == said
