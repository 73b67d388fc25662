"""The index of rights: what bindings give, followed change by change; aggregation; the roles of a new cluster."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rowlock import kinds, objects
from rowlock.api import Change
from rowlock.authentication.users import AUTHENTICATED, User
from rowlock.authorization import bootstrap_policy
from rowlock.authorization.authorizer import Attributes
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.controllers.view.state import State
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.system.role_aggregation import SELECTORS_PER_TURN, RoleAggregation, aggregate_rules

ANA, BOB = User("ana", ("team", AUTHENTICATED)), User("bob", (AUTHENTICATED,))
PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
GET_PODS = Attributes("get", "", "pods", "", "a", "p")


class Rights:
    """A state, and an authorizer that follows it."""

    def __init__(self) -> None:
        self.state = State()
        self.authorizer = RbacAuthorizer(self.state)
        self._revision = 0

    def put(self, kind: Kind, namespace: str, name: str, /, **content: Any) -> None:
        obj = {
            **content,
            "metadata": {
                "name": name,
                **({"namespace": namespace} if namespace else {}),
                **content.get("metadata", {}),
            },
        }
        self._apply("Modified" if self.state.get(kind, namespace, name) else "Added", kind, obj)

    def drop(self, kind: Kind, namespace: str, name: str) -> None:
        obj = self.state.get(kind, namespace, name)
        assert obj is not None
        self._apply("Deleted", kind, obj)

    def _apply(self, type: Any, kind: Kind, obj: Object) -> None:
        self._revision += 1
        self.state.apply(Change(type, self._revision, kind, obj))

    def may(self, user: User, attributes: Attributes = GET_PODS) -> bool:
        return self.authorizer.authorize(user, attributes).allowed


def ref(kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def test_a_decision_follows_every_change() -> None:
    rights = Rights()
    subject = {"kind": "Group", "name": "team"}
    rights.put(kinds.ROLE_BINDING, "a", "b", roleRef=ref("Role", "r"), subjects=[subject])
    decision = rights.authorizer.authorize(ANA, GET_PODS)
    assert decision == (False, 'RBAC: role.rbac.authorization.k8s.io "r" not found')
    rights.put(kinds.ROLE, "a", "r", rules=[PODS])
    decision = rights.authorizer.authorize(ANA, GET_PODS)
    assert decision == (True, 'RBAC: allowed by RoleBinding "b/a" of Role "r" to Group "team"')
    assert not rights.may(BOB)
    assert not rights.may(ANA, GET_PODS._replace(namespace="other"))
    assert not rights.may(ANA, GET_PODS._replace(namespace=""))
    rights.put(kinds.ROLE_BINDING, "a", "b", roleRef=ref("Role", "r"), subjects=[{"kind": "User", "name": "bob"}])
    assert (rights.may(ANA), rights.may(BOB)) == (False, True)
    rights.put(kinds.ROLE, "a", "r", rules=[{**PODS, "resourceNames": ["q"]}])
    assert not rights.may(BOB)
    rights.put(kinds.ROLE, "a", "r", rules=[PODS])
    rights.drop(kinds.ROLE_BINDING, "a", "b")
    assert not rights.may(BOB)


def test_a_cluster_role_counts_where_it_is_bound() -> None:
    rights = Rights()
    rights.put(kinds.CLUSTER_ROLE, "", "c", rules=[PODS])
    rights.put(kinds.ROLE, "a", "c", rules=[])
    rights.put(
        kinds.ROLE_BINDING, "a", "b", roleRef=ref("ClusterRole", "c"), subjects=[{"kind": "User", "name": "bob"}]
    )
    assert rights.may(BOB) and not rights.may(BOB, GET_PODS._replace(namespace="z"))
    rights.put(
        kinds.CLUSTER_ROLE_BINDING, "", "b", roleRef=ref("ClusterRole", "c"), subjects=[{"kind": "User", "name": "ana"}]
    )
    assert rights.may(ANA, GET_PODS._replace(namespace="z")) and rights.may(ANA, GET_PODS._replace(namespace=""))


def test_a_user_named_as_a_group_is_not_that_group() -> None:
    rights = Rights()
    rights.put(kinds.CLUSTER_ROLE, "", "c", rules=[PODS])
    rights.put(
        kinds.CLUSTER_ROLE_BINDING,
        "",
        "b",
        roleRef=ref("ClusterRole", "c"),
        subjects=[{"kind": "Group", "name": "bob"}],
    )
    assert not rights.may(BOB)


def test_the_index_is_what_a_new_one_would_be() -> None:
    """After a thousand random changes, an index that followed them decides as one that is made from the state."""
    rights, choose = Rights(), random.Random(7)
    people = [User(name, (group, AUTHENTICATED)) for name in "abc" for group in ("g", "h")]
    for _ in range(1000):
        kind = choose.choice(kinds.RBAC)
        key = Key(choose.choice("xy") if kind.namespaced else "", choose.choice("pqr"))
        if rights.state.get(kind, *key) is not None and choose.random() < 0.4:
            rights.drop(kind, *key)
        elif kind in (kinds.ROLE, kinds.CLUSTER_ROLE):
            verbs = choose.sample(["get", "list", "delete", "*"], 2)
            rights.put(
                kind,
                *key,
                rules=[{"verbs": verbs, "apiGroups": [""], "resources": [choose.choice(["pods", "pods/log"])]}],
            )
        else:
            subjects = [{"kind": "User", "name": choose.choice("abc")}, {"kind": "Group", "name": choose.choice("gh")}]
            role = ref(choose.choice(["Role", "ClusterRole"]), choose.choice("pqr"))
            rights.put(kind, *key, roleRef=role, subjects=subjects)
        fresh, user = RbacAuthorizer(rights.state), choose.choice(people)
        for space in ("", "x", "y"):
            question = Attributes(
                choose.choice(["get", "list", "watch"]), "", "pods", choose.choice(["", "log"]), space, "p"
            )
            assert rights.authorizer.authorize(user, question).allowed == fresh.authorize(user, question).allowed
            known = [sorted(map(str, one.rules_for(user, space))) for one in (rights.authorizer, fresh)]
            assert known[0] == known[1]


@pytest.mark.parametrize(
    ("rule", "attributes", "allowed"),
    [
        ({**PODS, "resources": ["*/log"]}, GET_PODS._replace(subresource="log"), True),
        ({**PODS, "resources": ["*/log"]}, GET_PODS, False),
        ({**PODS, "resources": ["pods/*"]}, GET_PODS._replace(subresource="log"), False),
        ({**PODS, "resources": ["*"]}, GET_PODS._replace(subresource="log"), True),
        (PODS, GET_PODS._replace(subresource="log"), False),
        (PODS, GET_PODS._replace(group="apps"), False),
        ({**PODS, "apiGroups": ["*"]}, GET_PODS._replace(group="apps"), True),
        ({**PODS, "resourceNames": ["p"]}, GET_PODS._replace(name=""), False),
        (PODS, Attributes("get", path="/pods"), False),
        ({"verbs": ["get"], "nonResourceURLs": ["/x/*"]}, Attributes("get", path="/x/y"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/x"]}, Attributes("get", path="/x/y"), False),
        ({"verbs": ["*"], "nonResourceURLs": ["*"]}, Attributes("post", path="/x/y"), True),
        ({"verbs": ["*"], "nonResourceURLs": ["*"]}, GET_PODS, False),
    ],
)
def test_what_a_rule_allows(rule: Object, attributes: Attributes, allowed: bool) -> None:
    rights = Rights()
    rights.put(kinds.CLUSTER_ROLE, "", "c", rules=[rule])
    rights.put(
        kinds.CLUSTER_ROLE_BINDING, "", "b", roleRef=ref("ClusterRole", "c"), subjects=[{"kind": "User", "name": "bob"}]
    )
    assert rights.may(BOB, attributes) is allowed


# ---------------------------------------------------------------- the roles of a new cluster


@pytest.fixture(scope="module")
def born() -> Rights:
    rights = Rights()
    for kind, obj in bootstrap_policy.initial_objects():
        rights.put(kind, "", objects.name(obj), **obj)
    return rights


def bind(rights: Rights, role: str) -> User:
    user = User(f"has-{role}", (AUTHENTICATED,))
    rights.put(
        kinds.ROLE_BINDING, "a", role, roleRef=ref("ClusterRole", role), subjects=[{"kind": "User", "name": user.name}]
    )
    return user


READS = {("get", "", "pods", "log"), ("list", "kubeflow.org", "pytorchjobs", ""), ("get", "", "namespaces", "")}
WRITES = {
    ("create", "kubeflow.org", "pytorchjobs", ""),
    ("get", "", "secrets", ""),
    ("create", "", "pods", "exec"),
    ("delete", "", "pods", ""),
}
GRANTS = {("create", "rbac.authorization.k8s.io", "rolebindings", "")}


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("view", READS), ("edit", READS | WRITES), ("admin", READS | WRITES | GRANTS), ("rowlock:viewer", READS),
        ("rowlock:editor", READS | WRITES), ("rowlock:admin", READS | WRITES | GRANTS),
    ],
)  # fmt: skip
def test_shipped_roles(born: Rights, role: str, allowed: set[tuple[str, str, str, str]]) -> None:
    user = bind(born, role)
    possible = {
        one for one in READS | WRITES | GRANTS if born.may(user, Attributes(*one)._replace(namespace="a", name="x"))
    }
    assert possible == allowed
    assert not any(
        born.may(user, Attributes(*one)._replace(namespace="b", name="x")) for one in READS | WRITES | GRANTS
    )


def test_viewers_read_every_kind_but_secrets_and_enter_no_pod(born: Rights) -> None:
    user = User("v", ("rowlock:viewers", AUTHENTICATED))
    readable = {kind.resource for kind in kinds.KINDS if born.may(user, Attributes("list", kind.group, kind.plural))}
    assert {kind.resource for kind in kinds.KINDS} - readable == {"secrets"}
    for kind in kinds.KINDS:
        assert not any(
            born.may(user, Attributes(verb, kind.group, kind.plural, "", "a", "x"))
            for verb in ("create", "update", "patch", "delete")
        )
    for way in ("exec", "attach", "portforward"):
        assert not any(born.may(user, Attributes(verb, "", "pods", way, "a", "p")) for verb in ("get", "create"))


def test_what_was_taken_from_a_shipped_role_comes_back() -> None:
    rights = Rights()
    for kind, obj in bootstrap_policy.initial_objects():
        rights.put(kind, "", objects.name(obj), **obj)
    assert list(bootstrap_policy.reconcile(rights.state)) == []
    basic = rights.state.get(kinds.CLUSTER_ROLE, "", "system:basic-user")
    assert basic is not None
    rights.put(kinds.CLUSTER_ROLE, "", "system:basic-user", **{**basic, "rules": [PODS]})
    ((kind, complete),) = bootstrap_policy.reconcile(rights.state)
    assert (kind, complete["rules"]) == (kinds.CLUSTER_ROLE, [PODS, *basic["rules"]])
    metadata = {**basic["metadata"], "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}
    rights.put(kinds.CLUSTER_ROLE, "", "system:basic-user", **{**basic, "metadata": metadata, "rules": [PODS]})
    assert list(bootstrap_policy.reconcile(rights.state)) == []


def test_aggregation_follows_labels() -> None:
    rights = Rights()
    selector = {"matchExpressions": [{"key": "to", "operator": "In", "values": ["x"]}]}
    rights.put(kinds.CLUSTER_ROLE, "", "all", aggregationRule={"clusterRoleSelectors": [selector]})
    rights.put(kinds.CLUSTER_ROLE, "", "b", rules=[PODS])
    controller, key = RoleAggregation(), Key("", "all")
    role = rights.state.get(kinds.CLUSTER_ROLE, "", "all")
    assert role is not None
    rights.put(kinds.CLUSTER_ROLE, "", "all", **{**role, "metadata": {"name": "all", "resourceVersion": "1"}})
    assert controller.decide(rights.state, key, 0).writes == ()
    rights.put(kinds.CLUSTER_ROLE, "", "b", rules=[PODS], metadata={"name": "b", "labels": {"to": "x"}})
    (write,) = controller.decide(rights.state, key, 0).writes
    assert write.patch["rules"] == [PODS]  # type: ignore[union-attr]
    assert (
        aggregate_rules(
            {
                "metadata": {"name": "n"},
                "aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [{"operator": "Odd"}]}]},
            },
            [role],
        )
        == []
    )


def test_thousands_of_selectors_are_worked_through_in_turns() -> None:
    """And begun anew when a role changes meanwhile."""
    rights = Rights()
    none = [{"matchLabels": {"to": f"nobody-{n}"}} for n in range(SELECTORS_PER_TURN)]
    last = {"matchLabels": {"to": "x"}}
    rights.put(kinds.CLUSTER_ROLE, "", "b", rules=[PODS, PODS], metadata={"name": "b", "labels": {"to": "x"}})
    metadata = {"name": "all", "resourceVersion": "1"}
    rights.put(
        kinds.CLUSTER_ROLE, "", "all", metadata=metadata, aggregationRule={"clusterRoleSelectors": [*none, *none, last]}
    )
    controller, key = RoleAggregation(), Key("", "all")
    for _ in range(2):
        decision = controller.decide(rights.state, key, 0)
        assert (decision.writes, decision.requeue_after) == ((), 0.0)
    rights.put(
        kinds.CLUSTER_ROLE, "", "c", rules=[{**PODS, "verbs": ["list"]}], metadata={"name": "c", "labels": {"to": "x"}}
    )
    for _ in range(2):
        assert controller.decide(rights.state, key, 0).requeue_after == 0.0
    (write,) = controller.decide(rights.state, key, 0).writes
    assert write.patch["rules"] == [PODS, {**PODS, "verbs": ["list"]}]  # type: ignore[union-attr]
