"""What `rowlock manifests` prints: the rights are those of the table, the page lists them, and nothing is too much."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from rowlock.cli.commands.tree import ROOT
from rowlock.cli.main import run
from rowlock.errors import Forbidden
from rowlock.kube.manifests import install_objects
from rowlock.kube.rights import (
    ARCHIVE_RULES,
    DIALECT_RULES,
    OPERATOR_RULES,
    RULES_REVIEW,
    SCHEDULER_RULES,
    SERVER_RULES,
    SWEEP_RULES,
    TRAINER_RULES,
    Rule,
    missing_rights,
)
from rowlock.objects import Object

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kubernetes.md"


def by_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    return {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == kind}


def test_the_manifests_are_yaml_in_an_order_that_can_be_created(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ROOT, ["manifests", "--scheduler", "own"], ()) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    assert objects == install_objects(scheduler="own", crds=True)
    order = [obj["kind"] for obj in objects]
    assert order.index("Namespace") < order.index("ServiceAccount") < order.index("Role")


def test_who_does_not_schedule_gets_no_rights_of_a_scheduler() -> None:
    objects = install_objects(scheduler="kai", crds=False)
    of_people = {"rowlock-view", "rowlock-edit", "rowlock-admin"}
    assert by_kind(objects, "ClusterRole").keys() == {"rowlock-server", "rowlock-sweeps", *of_people}
    assert by_kind(objects, "Role").keys() == {"rowlock-sweeps"}
    assert not by_kind(objects, "CustomResourceDefinition")


@pytest.mark.parametrize("scheduler", DIALECT_RULES)
def test_rights_of_a_scheduler_come_with_it_alone(scheduler: str) -> None:
    groups = {rule.group for rule in DIALECT_RULES[scheduler]}

    def groups_for(chosen: str) -> set[str]:
        roles = by_kind(install_objects(scheduler=chosen, crds=False), "ClusterRole").values()
        return {group for role in roles for rule in role["rules"] for group in rule["apiGroups"]}

    assert groups <= groups_for(scheduler) and groups <= groups_for("auto")
    assert not any(
        groups & groups_for(other) for other in ("own", "kai", "cluster", *(DIALECT_RULES.keys() - {scheduler}))
    )


@pytest.mark.parametrize("scheduler", DIALECT_RULES)
def test_there_are_no_rights_for_sweeps_where_they_are_refused(scheduler: str) -> None:
    assert not by_kind(install_objects(scheduler=scheduler, crds=False), "Role")


def test_leases_are_writable_in_our_namespace_alone() -> None:
    objects = install_objects(scheduler="own", crds=True)
    roles = by_kind(objects, "ClusterRole").values()
    everywhere = {resource for role in roles for rule in role["rules"] for resource in rule["resources"]}
    assert "leases" not in everywhere and "secrets" not in everywhere
    inside = by_kind(objects, "Role")
    assert {role["metadata"]["namespace"] for role in inside.values()} == {"rowlock-system"}
    resources = {name: [rule["resources"] for rule in role["rules"]] for name, role in inside.items()}
    assert resources == {"rowlock-scheduler": [["leases"]], "rowlock-sweeps": [["secrets"], ["leases"]]}


def test_people_get_rights_by_kubernetes_own_roles() -> None:
    roles = by_kind(install_objects(scheduler="own", crds=True), "ClusterRole")
    for level, resource, verb in (
        ("view", "podgroups", "list"),
        ("edit", "pytorchjobs", "create"),
        ("admin", "queues", "patch"),
    ):
        role = roles[f"rowlock-{level}"]
        assert role["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{level}"] == "true"
        assert any(resource in rule["resources"] and verb in rule["verbs"] for rule in role["rules"])
    assert not any("create" in rule["verbs"] for rule in roles["rowlock-view"]["rules"])


def test_no_right_is_a_wildcard() -> None:
    for rule in (*SERVER_RULES, *SCHEDULER_RULES):
        assert "*" not in (rule.group, *rule.resources, *rule.verbs)


@pytest.mark.parametrize(
    "rule",
    [
        *SERVER_RULES,
        *SCHEDULER_RULES,
        *OPERATOR_RULES,
        *TRAINER_RULES,
        *ARCHIVE_RULES,
        *SWEEP_RULES,
        *(rule for rules in DIALECT_RULES.values() for rule in rules),
    ],
    ids=lambda rule: "+".join(rule.resources)[:40],
)
def test_the_page_names_every_right(rule: Any) -> None:
    rights = PAGE.read_text().partition("## Rights")[2].partition("## What works")[0]
    for resource in rule.resources:
        known = "job kinds" in rights if rule.group == "kubeflow.org" else resource in rights
        assert known, f"docs/kubernetes.md does not say that {resource} is needed"
    for verb in rule.verbs:
        assert verb in rights


class Reviews:
    """An API that allows everything but what is in `refused`, and says in one answer what `rules` allow."""

    def __init__(self, *refused: tuple[str, str], rules: list[Object] | None = None) -> None:
        self.refused, self.rules = set(refused), rules
        self.asked: list[dict[str, str]] = []

    async def create(self, kind: Any, review: Object) -> Object:
        if kind is RULES_REVIEW:
            if self.rules is None:
                raise Forbidden("no")
            return {"status": {"resourceRules": self.rules if review["spec"]["namespace"] != "rowlock-system" else []}}
        asked = review["spec"]["resourceAttributes"]
        self.asked.append(asked)
        resource = asked["resource"] + (f"/{asked['subresource']}" if asked["subresource"] else "")
        return {"status": {"allowed": (asked["verb"], resource) not in self.refused}}


def test_missing_rights_are_named() -> None:
    api = Reviews(("create", "pods/binding"), ("patch", "queues/status"))
    missing = asyncio.run(missing_rights(api, SCHEDULER_RULES))  # type: ignore[arg-type]
    assert missing == ["create pods/binding", "patch queues/status.scheduling.run.ai"]
    assert {"namespace": "rowlock-system"}.items() <= next(a for a in api.asked if a["resource"] == "leases").items()


def test_one_question_answers_for_what_it_shows() -> None:
    """Rules with names of objects show nothing; what is not shown is asked for."""
    rules: list[Object] = [
        {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/log"]},
        {"verbs": ["list"], "apiGroups": ["*"], "resources": ["pods"], "resourceNames": ["one"]},
    ]
    wanted = (
        Rule("apps", ("deployments", "deployments/scale"), ("list",)),
        Rule("", ("pods", "pods/log"), ("get",)),
        Rule("", ("pods", "nodes/log"), ("list", "get")),
        Rule("coordination.k8s.io", ("leases",), ("get",), "rowlock-system"),
    )
    api = Reviews(("list", "pods"), rules=rules)
    assert asyncio.run(missing_rights(api, wanted)) == ["list pods"]  # type: ignore[arg-type]
    asked = [(a["verb"], a["resource"], a["subresource"]) for a in api.asked]
    assert asked == [("list", "pods", ""), ("list", "nodes", "log"), ("get", "leases", "")]
