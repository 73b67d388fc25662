"""What clients ask first: groups, versions, resources. Made once from the table of kinds, in all three shapes.

The aggregated form (`apidiscovery.k8s.io` v2 and v2beta1) is what kubectl and client-go prefer; the older lists are
for everybody else. Groups that hold only questions (access reviews) are rows here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from rowlock import __version__, kinds
from rowlock.cluster.api import absent
from rowlock.cluster.api.answers import encode
from rowlock.kinds import Kind

_BUILT_IN = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_CHANGE, _CREATE, _STREAM = ("get", "patch", "update"), ("create",), ("create", "get")


@dataclass(frozen=True, slots=True)
class Resource:
    """One line of discovery: a kind or a subresource (`pods/log`)."""

    name: str
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    answers: tuple[str, str] = ("", "")
    """Group and version of the kind, where they are not the list's own."""


_SUBRESOURCES: dict[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
    "attach": (("", "", "PodAttachOptions"), _STREAM),
    "exec": (("", "", "PodExecOptions"), _STREAM),
    "portforward": (("", "", "PodPortForwardOptions"), _STREAM),
    "binding": (("", "", "Binding"), _CREATE),
    "eviction": (("policy", "v1", "Eviction"), _CREATE),
    "scale": (("autoscaling", "v1", "Scale"), _CHANGE),
}
"""Subresources whose kind is not that of their parent; `status` and its like are."""

_EXTRA: dict[tuple[str, str], tuple[Resource, ...]] = {
    ("", "v1"): (
        Resource("bindings", "Binding", "binding", True, _CREATE),
        Resource("endpoints", "Endpoints", "endpoints", True, ("list",), ("ep",)),
    ),
    ("authentication.k8s.io", "v1"): (
        Resource("selfsubjectreviews", "SelfSubjectReview", "selfsubjectreview", False, _CREATE),
        Resource("tokenreviews", "TokenReview", "tokenreview", False, _CREATE),
    ),
    ("authorization.k8s.io", "v1"): (
        Resource("localsubjectaccessreviews", "LocalSubjectAccessReview", "localsubjectaccessreview", True, _CREATE),
        Resource("selfsubjectaccessreviews", "SelfSubjectAccessReview", "selfsubjectaccessreview", False, _CREATE),
        Resource("selfsubjectrulesreviews", "SelfSubjectRulesReview", "selfsubjectrulesreview", False, _CREATE),
        Resource("subjectaccessreviews", "SubjectAccessReview", "subjectaccessreview", False, _CREATE),
    ),
    ("policy", "v1"): (),
    ("apiextensions.k8s.io", "v1"): (
        Resource(
            "customresourcedefinitions", "CustomResourceDefinition", "customresourcedefinition", False,
            ("get", "list"), ("crd", "crds"), ("api-extensions",),
        ),
    ),
}  # fmt: skip


def _of_kind(kind: Kind) -> Iterable[Resource]:
    verbs: tuple[str, ...] = _CUSTOM if kind.custom else _BUILT_IN
    if kind is kinds.NAMESPACE:
        verbs = tuple(v for v in verbs if v != "deletecollection")
    yield Resource(kind.plural, kind.name, kind.singular, kind.namespaced, verbs, kind.short, kind.categories)
    order = ["status", "scale"] if kind.custom else sorted(kind.subresources)
    for sub in (s for s in order if s in kind.subresources):
        (group, version, name), does = _SUBRESOURCES.get(sub, (("", "", kind.name), _CHANGE))
        does = ("update",) if sub == "finalize" else ("get",) if sub == "log" else does
        yield Resource(f"{kind.plural}/{sub}", name, "", kind.namespaced, does, answers=(group, version))


@cache
def resources() -> dict[tuple[str, str], tuple[Resource, ...]]:
    """Everything served, by group and version; the core group first."""
    found: dict[tuple[str, str], list[Resource]] = {}
    for kind in (*kinds.KINDS, kinds.NEWER_EVENT):
        found.setdefault((kind.group, kind.version), []).extend(_of_kind(kind))
    for key, extra in _EXTRA.items():
        found.setdefault(key, []).extend(extra)
    for kind in (row.kind for row in absent.ROWS):
        known = Resource(
            kind.plural, kind.name, kind.singular, kind.namespaced, absent.VERBS, kind.short, kind.categories
        )
        found.setdefault((kind.group, kind.version), []).append(known)
    return {key: tuple(found[key]) for key in sorted(found)}


def versions(group: str) -> list[str]:
    return [version for g, version in resources() if g == group]


def groups() -> list[str]:
    """All named groups."""
    return sorted({group for group, _ in resources() if group})


# ---------------------------------------------------------------- the older shapes


def api_versions(address: str) -> dict[str, Any]:
    """`GET /api`"""
    cidr = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": cidr}


def group(name: str, *, alone: bool = True) -> dict[str, Any]:
    """`GET /apis/GROUP`, or one entry of `GET /apis`."""
    found = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions(name)]
    head = {"kind": "APIGroup", "apiVersion": "v1"} if alone else {}
    return {**head, "name": name, "versions": found, "preferredVersion": found[0]}


def group_list() -> dict[str, Any]:
    """`GET /apis`"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(name, alone=False) for name in groups()]}


def resource_list(name: str, version: str) -> dict[str, Any]:
    """`GET /api/v1`, `GET /apis/GROUP/VERSION`"""
    found = []
    for resource in resources()[(name, version)]:
        line: dict[str, Any] = {
            "name": resource.name,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
        }
        if resource.answers[1]:
            line["group"], line["version"] = resource.answers
        line["kind"], line["verbs"] = resource.kind, list(resource.verbs)
        if resource.short:
            line["shortNames"] = list(resource.short)
        if resource.categories:
            line["categories"] = list(resource.categories)
        found.append(line)
    title = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": title, "resources": found}


# ---------------------------------------------------------------- the aggregated shape


def aggregated(named: bool, version: str) -> dict[str, Any]:
    """`GET /api` or (named) `GET /apis` with everything in one answer; `version` is v2 or v2beta1."""
    items = []
    for name in groups() if named else [""]:
        listed = [_aggregated_version(name, v) for v in versions(name)]
        items.append({"metadata": {"name": name} if name else {}, "versions": listed})
    api = f"apidiscovery.k8s.io/{version}"
    return {"kind": "APIGroupDiscoveryList", "apiVersion": api, "metadata": {}, "items": items}


def _aggregated_version(name: str, version: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    custom = name in {k.group for k in kinds.KINDS if k.custom}
    for resource in resources()[(name, version)]:
        parent, _, sub = resource.name.partition("/")
        own = (name, version) if custom or name not in {k.group for k in kinds.KINDS} else ("", "")
        group_of, version_of = resource.answers if resource.answers[1] else own
        kind = {"group": group_of, "version": version_of, "kind": resource.kind}
        if sub:
            line = {"subresource": sub, "responseKind": kind, "verbs": list(resource.verbs)}
            found[parent].setdefault("subresources", []).append(line)
        else:
            found[parent] = _aggregated_resource(resource, kind)
    return {"version": version, "resources": list(found.values()), "freshness": "Current"}


def _aggregated_resource(resource: Resource, kind: dict[str, str]) -> dict[str, Any]:
    line: dict[str, Any] = {
        "resource": resource.name,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short:
        line["shortNames"] = list(resource.short)
    if resource.categories:
        line["categories"] = list(resource.categories)
    return line


def version_text() -> bytes:
    """`GET /version`, laid out as a real server lays it out: people read it."""
    return msgspec.json.format(encode(server_version()), indent=2)


def server_version() -> dict[str, str]:
    """`GET /version`: the Kubernetes whose API this is, and what really answers."""
    return {
        "major": "1",
        "minor": "34",
        "emulationMajor": "1",
        "emulationMinor": "34",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "33",
        "gitVersion": f"v1.34.4+rowlock-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "cpython",
        "platform": "linux/amd64",
    }
