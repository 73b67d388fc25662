"""A project or department that takes the name of a deleted one begins with nothing: no policies, no assets, no rights, no quota."""

from __future__ import annotations

import pytest
from tests.rest.conftest import World

from rowlock import kinds
from rowlock.objects import dig, uid
from rowlock.workloads import projects

PROJECTS, DEPARTMENTS = "/api/v1/org-unit/projects", "/api/v1/org-unit/departments"
POLICY, ENVIRONMENTS = "/api/v2/policy/distributed", "/api/v1/asset/environment"
RBAC = kinds.ROLE.group


@pytest.fixture
def lab(world: World) -> World:
    world.ensure_namespace("kube-public")
    world.ensure_namespace("other")
    return world


def ask(world: World, method: str, path: str, body: object = None, code: int = 202) -> dict[str, object]:
    answer = world.client.request(method, path, json=body)
    assert answer.status_code == code, answer.text
    return dict(answer.json()) if answer.content else {}


def test_the_next_department_of_a_name_has_no_policies_and_assets(lab: World) -> None:
    for round_ in range(2):
        ask(lab, "POST", DEPARTMENTS, {"name": "physics"}, 201)
        place = {"scope": "department", "departmentId": "physics"}
        effective = lab.client.get(POLICY, params=place)
        assert effective.status_code == 404 or "rules" not in effective.json()["effective"], effective.text
        assert [one for one in lab.client.get(ENVIRONMENTS).json()["entries"] if one["meta"]["name"] == "old"] == []
        if not round_:
            rules = {"rules": {"worker": {"numWorkers": {"max": 1}}}}
            ask(lab, "PUT", POLICY, {"meta": {"name": "limits", **place}, "policy": rules}, 200)
            meta = {"name": "old", "scope": "department", "departmentId": "physics"}
            ask(lab, "POST", ENVIRONMENTS, {"meta": meta, "spec": {"image": "old"}})
        ask(lab, "DELETE", f"{DEPARTMENTS}/physics")


def binding(namespace: str, *subjects: dict[str, str]) -> dict[str, object]:
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
    place = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": "shared", **place}, "roleRef": role, "subjects": list(subjects)}


def test_the_next_project_of_a_name_may_do_nothing_elsewhere(lab: World) -> None:
    """Its service accounts have the names of the old one's, which other projects may have bound."""
    lab.project("team")
    account = {"kind": "ServiceAccount", "name": "default", "namespace": "runai-team"}
    group = {"kind": "Group", "apiGroup": RBAC, "name": "system:serviceaccounts:runai-team"}
    user = {"kind": "User", "apiGroup": RBAC, "name": "system:serviceaccount:runai-team:default"}
    eve = {"kind": "User", "apiGroup": RBAC, "name": "eve"}
    namesake = {"kind": "ServiceAccount", "name": "default", "namespace": "runai-team-b"}
    lab.create(kinds.ROLE_BINDING, binding("other", account, eve, group, namesake, user))
    lab.create(kinds.CLUSTER_ROLE_BINDING, binding("", account))
    ask(lab, "DELETE", f"{PROJECTS}/team")
    left = lab.store.view.get(kinds.ROLE_BINDING, "other", "shared")
    assert left is not None and left["subjects"] == [eve, namesake]
    assert lab.store.view.get(kinds.CLUSTER_ROLE_BINDING, "", "shared") is None


def test_a_queue_that_an_older_project_left_gives_no_quota(lab: World) -> None:
    """`kubectl delete namespace` leaves the queue; the next project of that name has a queue of its own."""
    request = projects.parse_project_request({"name": "team", "resources": [{"gpu": {"deserved": 3, "limit": 3}}]})
    left = projects.to_queue(request)
    queue = lab.create(kinds.QUEUE, {**left, "spec": {**left["spec"], "priority": 900}})
    lab.project("team", gpus=1)
    made = lab.store.view.get(kinds.QUEUE, "", "team")
    assert made is not None and uid(made) != uid(queue)
    assert dig(made, "spec.priority") is None and dig(made, "spec.resources.gpu.limit") != 3
