"""Pods of a project with a Unix account: what becomes of them, and what they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.errors import Forbidden
from rowlock.system.unix_accounts import (
    UNIX_ACCOUNT_ANNOTATION,
    UNRESTRICTED,
    UnixAccount,
    UnixAccountRules,
    check_account,
    check_annotation_is_kept,
    restrict_pod,
)

ANA = "ana uid=1001 gid=1001 groups=27,1001"
REQUIRED = UnixAccountRules(required=True)


def namespace(value: str | None) -> dict[str, Any]:
    annotations = {} if value is None else {UNIX_ACCOUNT_ANNOTATION: value}
    return {"metadata": {"name": "runai-ana", "annotations": annotations}}


def pod(spec: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "x", **container}
    return {"metadata": {"name": "p"}, "spec": {"containers": [main], **(spec or {})}}


def test_an_account_is_read_as_id_prints_it() -> None:
    assert UnixAccount.parse(ANA) == UnixAccount("ana", 1001, 1001, (27, 1001))
    for odd in (
        "",
        "ana",
        "ana uid=² gid=1 groups=1",
        f"{ANA}\n",
        "ana uid=1 gid=1 groups=",
        "ana uid=-1 gid=1 groups=1",
    ):
        assert UnixAccount.parse(odd) is None


def test_a_pod_runs_as_its_projects_account() -> None:
    before = pod({"initContainers": [{"name": "i"}], "ephemeralContainers": [{"name": "e"}]})
    spec = restrict_pod(before, namespace(ANA), REQUIRED)["spec"]
    assert spec["securityContext"] == {
        "runAsUser": 1001, "runAsGroup": 1001, "supplementalGroups": [27], "fsGroup": 1001,
    }  # fmt: skip
    for field in ("initContainers", "containers", "ephemeralContainers"):
        assert spec[field][0]["securityContext"] == {"allowPrivilegeEscalation": False}
    assert "securityContext" not in before["spec"], "objects are values"
    assert restrict_pod({**before, "spec": spec}, namespace(ANA), REQUIRED)["spec"] == spec, "once more changes nothing"


def test_what_the_account_may_ask_for_is_kept() -> None:
    context = {"runAsUser": 1001, "runAsNonRoot": True, "fsGroup": 27, "supplementalGroups": [1001]}
    spec = restrict_pod(pod({"securityContext": context}), namespace(ANA), REQUIRED)["spec"]
    assert spec["securityContext"] == {**context, "runAsGroup": 1001, "supplementalGroups": [27]}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (pod({"securityContext": {"runAsUser": 0}}), "runAsUser must be 1001"),
        (pod({"securityContext": {"runAsGroup": 0}}), "runAsGroup must be 1001"),
        (pod({"securityContext": {"fsGroup": 0}}), "a member of the groups 27, 1001 and of no other"),
        (pod({"securityContext": {"supplementalGroups": [27, 4]}}), "and of no other"),
        (pod(securityContext={"runAsUser": 0}), r"spec.containers\[0\].securityContext.runAsUser must be 1001"),
        (pod({"initContainers": [{"securityContext": {"runAsUser": 1}}]}), r"spec.initContainers\[0\]"),
        (pod({"ephemeralContainers": [{"securityContext": {"runAsUser": 0}}]}), r"spec.ephemeralContainers\[0\]"),
        (pod(securityContext={"privileged": True}), "no privileges and no capabilities"),
        (pod(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "no privileges and no capabilities"),
        (pod(securityContext={"allowPrivilegeEscalation": True}), "must be false"),
        (pod({"volumes": [{"name": "h", "hostPath": {"path": "/home/bob"}}]}), "root would mount /home/bob"),
        (pod({"volumes": [{"name": "h", "hostPath": {}}]}), "root would mount"),
        (
            pod({"volumes": [{"name": "n", "nfs": {"server": "nas", "path": "/home"}}]}),
            "without a volume: use that path",
        ),
    ],
)
def test_what_leads_around_the_account_is_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Forbidden, match=sentence):
        restrict_pod(changed, namespace(ANA), UNRESTRICTED)


def test_an_account_that_cannot_be_or_is_none() -> None:
    with pytest.raises(Forbidden, match="cannot be read"):
        restrict_pod(pod(), namespace("anything"), UNRESTRICTED)
    with pytest.raises(Forbidden, match="was not started by root"):
        restrict_pod(pod(), namespace(ANA), UnixAccountRules(can_switch=False))
    assert restrict_pod(pod(), namespace(None), UNRESTRICTED) == pod()
    assert restrict_pod(pod(), namespace("root uid=0 gid=0 groups=0"), REQUIRED) == pod(), "the owner said so"
    for space in (namespace(None), None):
        with pytest.raises(Forbidden, match="has no Unix account"):
            restrict_pod(pod(), space, REQUIRED)
    with pytest.raises(Forbidden, match=r'pytorchjobs "p" is forbidden: its project has no Unix account'):
        check_account(pod(), "pytorchjobs", namespace(None), REQUIRED)


def test_only_the_owner_says_which_account() -> None:
    check_annotation_is_kept(namespace(ANA), namespace(ANA))
    check_annotation_is_kept(None, namespace(None))
    for old, new in ((namespace(ANA), namespace(None)), (None, namespace(ANA)), (namespace(None), namespace(ANA))):
        with pytest.raises(Forbidden, match="only the cluster's owner"):
            check_annotation_is_kept(old, new)
