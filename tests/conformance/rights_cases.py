"""Requests of users who are no administrators: what roles and bindings allow, who may grant them, and what a refusal says.

Rows of `answers.py`; the fifth part of a step is who asks (`kubectl --as`).
"""

from __future__ import annotations

from typing import Any

Asking = tuple[str, str, Any, str, str]
"""Method, path with query, body, content type, user."""

GROUP = "rbac.authorization.k8s.io"
RBAC, REVIEWS = f"/apis/{GROUP}/v1", "/apis/authorization.k8s.io/v1"
ROLES, BINDINGS = RBAC + "/namespaces/{ns}/roles", RBAC + "/namespaces/{ns}/rolebindings"
CLUSTER_ROLES, CLUSTER_BINDINGS = RBAC + "/clusterroles", RBAC + "/clusterrolebindings"
ACCOUNTS = "/api/v1/namespaces/{ns}/serviceaccounts"
TOKEN = ACCOUNTS + "/robot/token"
PODS, MAPS, JSON = "/api/v1/namespaces/{ns}/pods", "/api/v1/namespaces/{ns}/configmaps", "application/json"
ANA = {"kind": "User", "name": "ana"}
ACCOUNT = "system:serviceaccount:{ns}:robot"


def ask(user: str, method: str, path: str, body: Any = None, media: str = JSON) -> Asking:
    return (method, path, body, media, user)


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> dict[str, Any]:
    given = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**given, "resourceNames": names.split()} if names else given


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, role_kind: str, role_name: str, *subjects: dict[str, Any]) -> dict[str, Any]:
    ref = {"apiGroup": GROUP, "kind": role_kind, "name": role_name}
    return {"metadata": {"name": name}, "roleRef": ref, "subjects": list(subjects) or [ANA]}


def granted(*rules: dict[str, Any], cluster: bool = False) -> list[Any]:
    """A role with these rules, and ana has it."""
    if cluster:
        made = (
            ("POST", CLUSTER_ROLES, role("{ns}", *rules)),
            ("POST", CLUSTER_BINDINGS, binding("{ns}", "ClusterRole", "{ns}")),
        )
        return [*made]
    return [("POST", ROLES, role("r", *rules)), ("POST", BINDINGS, binding("b", "Role", "r"))]


REMOVED = [("DELETE", f"{CLUSTER_BINDINGS}/{{ns}}", None), ("DELETE", f"{CLUSTER_ROLES}/{{ns}}", None)]


def review(kind: str, **spec: Any) -> tuple[str, dict[str, Any]]:
    return f"{REVIEWS}/{kind}", {"spec": spec}


def attributes(verb: str, resource: str, **more: str) -> dict[str, str]:
    return {"verb": verb, "resource": resource, "namespace": "{ns}", **more}


ESCALATION = rule("get list", "nodes")
RIGHTS_CASES: dict[str, list[Any]] = {
    "rights of nobody": [
        ask("ana", "GET", PODS), ask("ana", "GET", PODS + "/x"), ask("ana", "GET", PODS + "/x/log"), ask("ana", "GET", "/api/v1/namespaces/{ns}"),
        ask("ana", "GET", "/apis/kubeflow.org/v1/pytorchjobs"), ask("ana", "POST", MAPS, {"metadata": {"name": "a"}}),
        ask("ana", "DELETE", PODS), ask("ana", "PATCH", MAPS + "/a", {}, "application/merge-patch+json"), ask("ana", "GET", "/"), ask("ana", "GET", "/metrics"),
        ask("ana", "POST", "/api/v1/namespaces/{ns}/bindings", {"metadata": {"name": "p"}, "target": {"name": "n"}}),
        ask("ana", "POST", PODS + "/x/eviction", {"metadata": {"name": "x"}}), ask("ana", "GET", "/apis/events.k8s.io/v1/namespaces/{ns}/events"),
    ],
    "a role in a namespace": [
        *granted(rule("get list", "pods pods/log")), ask("ana", "GET", PODS), ask("ana", "GET", PODS + "/x/log"), ask("ana", "GET", PODS + "/x/status"),
        ask("ana", "GET", PODS + "?watch=1"), ask("ana", "GET", "/api/v1/pods"), ask("bob", "GET", PODS),
    ],
    "a role about names": [
        *granted(rule("get list watch", "configmaps", names="this")), ask("ana", "GET", MAPS + "/this"), ask("ana", "GET", MAPS + "/that"), ask("ana", "GET", MAPS),
        ask("ana", "GET", MAPS + "?fieldSelector=metadata.name%3Dthis"), ask("ana", "GET", MAPS + "?fieldSelector=metadata.name%3Dthat"),
        ask("ana", "GET", MAPS + "?fieldSelector=metadata.name!%3Dthis"), ask("ana", "DELETE", MAPS + "?fieldSelector=metadata.name%3Dthis"),
    ],
    "a role that is not there": [("POST", BINDINGS, binding("b", "Role", "gone")), ask("ana", "GET", PODS)],
    "a cluster role that is not there": [("POST", BINDINGS, binding("c", "ClusterRole", "gone")), ask("ana", "GET", PODS)],
    "a role of a service account": [
        ("POST", ROLES, role("r", rule("get list", "pods"))),
        ("POST", BINDINGS, binding("b", "Role", "r", {"kind": "ServiceAccount", "name": "robot", "namespace": "{ns}"})),
        ask(ACCOUNT, "GET", PODS), ask(ACCOUNT, "GET", MAPS), ask("system:serviceaccount:default:robot", "GET", PODS),
    ],
    "rights to a namespace": [("POST", BINDINGS, binding("b", "ClusterRole", "view")), ask("ana", "GET", "/api/v1/namespaces/{ns}"), ask("ana", "GET", "/api/v1/namespaces")],
    "rights to paths": [
        ("POST", CLUSTER_ROLES, role("{ns}", {"verbs": ["get"], "nonResourceURLs": ["/healthz/*", "/nosuch"]})), ("POST", CLUSTER_BINDINGS, binding("{ns}", "ClusterRole", "{ns}")),
        ask("ana", "GET", "/nosuc"), ask("ana", "GET", "/healthz/etcd"), ask("ana", "POST", *review("selfsubjectaccessreviews", nonResourceAttributes={"verb": "get", "path": "/healthz/x"})), *REMOVED,
    ],
    "reviews of access": [
        *granted(rule("get", "pods", names="p"), rule("*", "*", "kubeflow.org")),
        *(ask("ana", "POST", *review("selfsubjectaccessreviews", resourceAttributes=one)) for one in (
            attributes("get", "pods"), attributes("get", "pods", name="p"), attributes("get", "pods", name="p", subresource="log"), attributes("watch", "tfjobs", group="kubeflow.org"),
            attributes("*", "*", group="kubeflow.org"), attributes("*", "*", group="*"), attributes("get", "pods", name="p", namespace=""),
        )),
        ("POST", *review("subjectaccessreviews", user="ana", resourceAttributes=attributes("get", "pods", name="p"))),
        ("POST", *review("subjectaccessreviews", groups=["system:masters"], resourceAttributes=attributes("get", "pods"))),
        ask("ana", "POST", *review("subjectaccessreviews", user="ana", resourceAttributes=attributes("get", "pods"))),
    ],
    "local reviews of access": [
        *granted(rule("get", "pods")),
        *(("POST", f"{REVIEWS}/namespaces/{{ns}}/localsubjectaccessreviews", {"spec": {"user": "ana", **spec}}) for spec in (
            {"resourceAttributes": attributes("get", "pods")}, {"resourceAttributes": attributes("get", "pods", namespace="default")},
            {"nonResourceAttributes": {"verb": "get", "path": "/x"}}, {},
        )),
    ],
    "a review of rules": [("POST", BINDINGS, binding("b", "Role", "gone")), ask("ana", "POST", *review("selfsubjectrulesreviews"))],
    "granting what one has": [
        ("POST", BINDINGS, binding("b", "ClusterRole", "admin")), ask("ana", "POST", ROLES, role("r", rule("get", "pods"))), ask("ana", "POST", BINDINGS, binding("c", "Role", "r")),
        ask("ana", "POST", BINDINGS, binding("d", "ClusterRole", "view")), ask("ana", "PATCH", ROLES + "/r", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json"),
    ],
    "granting what one has not": [
        ("POST", BINDINGS, binding("b", "ClusterRole", "admin")),
        ask("ana", "POST", ROLES, role("r", ESCALATION, rule("*", "*", "*"), rule("get", "pods nodes", names="a b"))),
        ask("ana", "PUT", ROLES + "/r", role("r", ESCALATION)), ask("ana", "POST", BINDINGS, binding("c", "ClusterRole", "cluster-admin")),
        ask("ana", "POST", BINDINGS, binding("c", "ClusterRole", "gone")), ask("ana", "POST", CLUSTER_BINDINGS, binding("{ns}", "ClusterRole", "view")),
        ("POST", ROLES, role("s", rule("get", "pods"))), ask("ana", "PATCH", ROLES + "/s", {"rules": [ESCALATION]}, "application/merge-patch+json"),
        ("POST", ROLES, role("t", ESCALATION)), ask("ana", "PATCH", ROLES + "/t", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json"),
    ],
    "the verb bind": [
        *granted(rule("bind", "clusterroles", GROUP, "edit"), rule("create", "rolebindings", GROUP)),
        ask("ana", "POST", BINDINGS, binding("c", "ClusterRole", "edit")), ask("bob", "POST", BINDINGS, binding("d", "ClusterRole", "edit")),
    ],
    "the verb escalate": [
        *granted(rule("escalate create", "roles clusterroles", GROUP), cluster=True), ask("ana", "POST", ROLES, role("r", rule("*", "*", "*"))),
        ask("ana", "PUT", ROLES + "/r", role("r", rule("get", "*", "*"))), *REMOVED,
    ],
    "aggregation for administrators": [
        *granted(rule("create", "clusterroles", GROUP), cluster=True),
        ask("ana", "POST", CLUSTER_ROLES, {"metadata": {"name": "x{ns}"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}), *REMOVED,
    ],
    "cluster roles that are none": [
        ("POST", CLUSTER_ROLES, {"metadata": {"name": "x"}, "aggregationRule": {}}), ("POST", CLUSTER_ROLES, {"metadata": {"name": "a%b"}}),
        ("POST", CLUSTER_ROLES, {"metadata": {"name": "x"}, "aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]}}),
        ("POST", CLUSTER_ROLES, role("x", {"verbs": []}, {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}, {"verbs": ["get"]})),
        ("POST", CLUSTER_BINDINGS, binding("x", "Role", "r")), ("POST", CLUSTER_BINDINGS, binding("x", "ClusterRole", "a/b")),
        ("POST", CLUSTER_BINDINGS, binding("x", "ClusterRole", "view", {"kind": "ServiceAccount", "name": "s"}, {"kind": "Robot", "name": "r"}, {"kind": "ServiceAccount", "name": "S_"})),
    ],
    "a cluster role": [
        ("POST", CLUSTER_ROLES, role("{ns}")), ("POST", CLUSTER_BINDINGS, binding("{ns}", "ClusterRole", "{ns}")), ("GET", CLUSTER_BINDINGS + "/{ns}", None),
        ("PUT", CLUSTER_BINDINGS + "/{ns}", binding("{ns}", "ClusterRole", "view")), *REMOVED,
    ],
    "impersonation": [
        *granted(rule("impersonate", "users", names="bob"), cluster=True), ask("ana", "GET", "/api/v1/namespaces"),
        ("POST", *review("subjectaccessreviews", user="ana", resourceAttributes={"verb": "impersonate", "resource": "users", "name": "bob"})), *REMOVED,
    ],
    "a token of a service account": [
        ("POST", ACCOUNTS, {"metadata": {"name": "robot"}}), ("POST", TOKEN, {}), ("POST", TOKEN, {"spec": {"audiences": ["a"], "expirationSeconds": 600}}),
        ("POST", TOKEN, {"spec": {"expirationSeconds": 599}}), ("POST", TOKEN, {"spec": {"expirationSeconds": 2**33}}), ("POST", TOKEN, {"metadata": {"name": "other"}}),
        ("POST", TOKEN, {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "gone"}}}),
        ("POST", TOKEN, {"spec": {"boundObjectRef": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "d"}}}),
        ("GET", TOKEN, None), ("POST", ACCOUNTS + "/gone/token", {}), ask("ana", "POST", TOKEN, {}),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "nobody's"}}),
    ],
    "an apply that creates": [
        *granted(rule("get patch", "configmaps")),
        ask("ana", "PATCH", MAPS + "/new?fieldManager=x", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\n", "application/apply-patch+yaml"),
    ],
    "an update that creates": [*granted(rule("get update", "leases", "coordination.k8s.io")), ask("ana", "PUT", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/new", {"metadata": {"name": "new"}})],
}  # fmt: skip
