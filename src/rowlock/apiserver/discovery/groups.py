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

from rowlock import KUBERNETES, __version__, kinds
from rowlock.apiserver.endpoints import unserved_kinds
from rowlock.apiserver.http.responses import encode
from rowlock.kinds import Kind

GIT_VERSION = f"v{KUBERNETES}+rowlock-{__version__}"
"""What `/version` and the OpenAPI documents say: whose API this is, and what really answers."""

_BUILT_IN_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_CHANGE_VERBS, _CREATE_VERBS, _STREAM_VERBS = ("get", "patch", "update"), ("create",), ("create", "get")


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One line of discovery: a kind or a subresource (`pods/log`)."""

    name: str
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    kind_group_version: tuple[str, str] = ("", "")
    """Group and version of the kind, where they are not the list's own."""


_SUBRESOURCES: dict[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
    "attach": (("", "", "PodAttachOptions"), _STREAM_VERBS),
    "exec": (("", "", "PodExecOptions"), _STREAM_VERBS),
    "portforward": (("", "", "PodPortForwardOptions"), _STREAM_VERBS),
    "binding": (("", "", "Binding"), _CREATE_VERBS),
    "eviction": (("policy", "v1", "Eviction"), _CREATE_VERBS),
    "scale": (("autoscaling", "v1", "Scale"), _CHANGE_VERBS),
}
"""Subresources whose kind is not that of their parent; `status` and its like are."""

_EXTRA_RESOURCES: dict[tuple[str, str], tuple[ApiResource, ...]] = {
    ("", "v1"): (
        ApiResource("bindings", "Binding", "binding", True, _CREATE_VERBS),
        ApiResource("endpoints", "Endpoints", "endpoints", True, ("list",), ("ep",)),
    ),
    ("authentication.k8s.io", "v1"): (
        ApiResource("selfsubjectreviews", "SelfSubjectReview", "selfsubjectreview", False, _CREATE_VERBS),
        ApiResource("tokenreviews", "TokenReview", "tokenreview", False, _CREATE_VERBS),
    ),
    ("authorization.k8s.io", "v1"): (
        ApiResource("localsubjectaccessreviews", "LocalSubjectAccessReview", "localsubjectaccessreview", True, _CREATE_VERBS),
        ApiResource("selfsubjectaccessreviews", "SelfSubjectAccessReview", "selfsubjectaccessreview", False, _CREATE_VERBS),
        ApiResource("selfsubjectrulesreviews", "SelfSubjectRulesReview", "selfsubjectrulesreview", False, _CREATE_VERBS),
        ApiResource("subjectaccessreviews", "SubjectAccessReview", "subjectaccessreview", False, _CREATE_VERBS),
    ),
    ("policy", "v1"): (),
    ("apiextensions.k8s.io", "v1"): (
        ApiResource(
            "customresourcedefinitions", "CustomResourceDefinition", "customresourcedefinition", False,
            ("get", "list"), ("crd", "crds"), ("api-extensions",),
        ),
    ),
}  # fmt: skip


def _resources_of_kind(kind: Kind) -> Iterable[ApiResource]:
    verbs: tuple[str, ...] = _CUSTOM_VERBS if kind.custom else _BUILT_IN_VERBS
    if kind is kinds.NAMESPACE:
        verbs = tuple(v for v in verbs if v != "deletecollection")
    yield ApiResource(kind.plural, kind.name, kind.singular, kind.namespaced, verbs, kind.short_names, kind.categories)
    order = ["status", "scale"] if kind.custom else sorted(kind.subresources)
    for sub in (s for s in order if s in kind.subresources):
        (group, version, name), sub_verbs = _SUBRESOURCES.get(sub, (("", "", kind.name), _CHANGE_VERBS))
        sub_verbs = ("update",) if sub == "finalize" else ("get",) if sub == "log" else sub_verbs
        yield ApiResource(
            f"{kind.plural}/{sub}", name, "", kind.namespaced, sub_verbs, kind_group_version=(group, version)
        )


@cache
def resources() -> dict[tuple[str, str], tuple[ApiResource, ...]]:
    """Everything served, by group and version; the core group first."""
    by_group_version: dict[tuple[str, str], list[ApiResource]] = {}
    for kind in (*kinds.KINDS, kinds.EVENTS_V1_EVENT):
        by_group_version.setdefault((kind.group, kind.version), []).extend(_resources_of_kind(kind))
    for key, extra in _EXTRA_RESOURCES.items():
        by_group_version.setdefault(key, []).extend(extra)
    for kind in (row.kind for row in unserved_kinds.ROWS):
        resource = ApiResource(
            kind.plural,
            kind.name,
            kind.singular,
            kind.namespaced,
            unserved_kinds.VERBS,
            kind.short_names,
            kind.categories,
        )
        by_group_version.setdefault((kind.group, kind.version), []).append(resource)
    return {key: tuple(by_group_version[key]) for key in sorted(by_group_version)}


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
    version_entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions(name)]
    head = {"kind": "APIGroup", "apiVersion": "v1"} if alone else {}
    return {**head, "name": name, "versions": version_entries, "preferredVersion": version_entries[0]}


def group_list() -> dict[str, Any]:
    """`GET /apis`"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(name, alone=False) for name in groups()]}


def resource_list(name: str, version: str) -> dict[str, Any]:
    """`GET /api/v1`, `GET /apis/GROUP/VERSION`"""
    lines = []
    for resource in resources()[(name, version)]:
        line: dict[str, Any] = {
            "name": resource.name,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
        }
        if resource.kind_group_version[1]:
            line["group"], line["version"] = resource.kind_group_version
        line["kind"], line["verbs"] = resource.kind, list(resource.verbs)
        if resource.short:
            line["shortNames"] = list(resource.short)
        if resource.categories:
            line["categories"] = list(resource.categories)
        lines.append(line)
    title = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": title, "resources": lines}


# ---------------------------------------------------------------- the aggregated shape


def aggregated_discovery(named_groups: bool, version: str) -> dict[str, Any]:
    """`GET /api` or (named) `GET /apis` with everything in one answer; `version` is v2 or v2beta1."""
    items = []
    for name in groups() if named_groups else [""]:
        version_entries = [_aggregated_version(name, v) for v in versions(name)]
        items.append({"metadata": {"name": name} if name else {}, "versions": version_entries})
    api = f"apidiscovery.k8s.io/{version}"
    return {"kind": "APIGroupDiscoveryList", "apiVersion": api, "metadata": {}, "items": items}


def _aggregated_version(name: str, version: str) -> dict[str, Any]:
    by_name: dict[str, dict[str, Any]] = {}
    custom = name in {k.group for k in kinds.KINDS if k.custom}
    for resource in resources()[(name, version)]:
        parent, _, sub = resource.name.partition("/")
        default_group_version = (name, version) if custom or name not in {k.group for k in kinds.KINDS} else ("", "")
        group_of, version_of = resource.kind_group_version if resource.kind_group_version[1] else default_group_version
        kind = {"group": group_of, "version": version_of, "kind": resource.kind}
        if sub:
            line = {"subresource": sub, "responseKind": kind, "verbs": list(resource.verbs)}
            by_name[parent].setdefault("subresources", []).append(line)
        else:
            by_name[parent] = _aggregated_resource(resource, kind)
    return {"version": version, "resources": list(by_name.values()), "freshness": "Current"}


def _aggregated_resource(resource: ApiResource, kind: dict[str, str]) -> dict[str, Any]:
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
    major, minor, _ = KUBERNETES.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "cpython",
        "platform": "linux/amd64",
    }
