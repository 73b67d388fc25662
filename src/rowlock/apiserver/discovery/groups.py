"""Discovery: groups, versions, resources. Built once from the table of kinds, in all three formats.

The aggregated form (`apidiscovery.k8s.io` v2 and v2beta1) is what kubectl and client-go prefer; the older lists are
for other clients. Groups that have only reviews are rows here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from rowlock import KUBERNETES, __version__, kinds
from rowlock.apiserver.discovery import computed_kinds
from rowlock.apiserver.http.responses import encode
from rowlock.kinds import Kind

GIT_VERSION = f"v{KUBERNETES}+rowlock-{__version__}"
"""The version in `/version` and the OpenAPI documents: Kubernetes' and rowlock's."""

_BUILT_IN_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_CHANGE_VERBS, _CREATE_VERBS, _STREAM_VERBS = ("get", "patch", "update"), ("create",), ("create", "get")


Resource = dict[str, Any]
"""One line of discovery, a kind or a subresource (`pods/log`), as `APIResourceList` has it."""


_SUBRESOURCES: dict[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
    "attach": (("", "", "PodAttachOptions"), _STREAM_VERBS),
    "exec": (("", "", "PodExecOptions"), _STREAM_VERBS),
    "portforward": (("", "", "PodPortForwardOptions"), _STREAM_VERBS),
    "binding": (("", "", "Binding"), _CREATE_VERBS),
    "eviction": (("policy", "v1", "Eviction"), _CREATE_VERBS),
    "scale": (("autoscaling", "v1", "Scale"), _CHANGE_VERBS),
    "finalize": (("", "", "Namespace"), ("update",)),
    "log": (("", "", "Pod"), ("get",)),
    "token": (("authentication.k8s.io", "v1", "TokenRequest"), ("create",)),
}
"""Subresources with another kind or other verbs than get, patch and update of the parent (as `status` has)."""

REVIEWS = {
    ("", "v1"): ("Binding",),
    ("authentication.k8s.io", "v1"): ("SelfSubjectReview", "TokenReview"),
    ("authorization.k8s.io", "v1"): (
        "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview",
    ),
    ("policy", "v1"): (),
}  # fmt: skip
"""Kinds that are only created and never stored: the result is the answer."""
_NAMESPACED_REVIEWS = ("Binding", "LocalSubjectAccessReview")


def _resource(kind: Kind, verbs: Iterable[str]) -> Resource:
    names: Resource = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced}
    lists = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {**names, "kind": kind.name, "verbs": list(verbs), **{key: value for key, value in lists.items() if value}}


def _resources_of_kind(kind: Kind) -> Iterable[Resource]:
    verbs: tuple[str, ...] = _CUSTOM_VERBS if kind.custom else _BUILT_IN_VERBS
    yield _resource(kind, (v for v in verbs if kind is not kinds.NAMESPACE or v != "deletecollection"))
    order = ["status", "scale"] if kind.custom else sorted(kind.subresources)
    for sub in (s for s in order if s in kind.subresources):
        (group, version, name), sub_verbs = _SUBRESOURCES.get(sub, (("", "", kind.name), _CHANGE_VERBS))
        line: Resource = {"name": f"{kind.plural}/{sub}", "singularName": "", "namespaced": kind.namespaced}
        if version:  # if group and version differ from those of the list
            line |= {"group": group, "version": version}
        yield {**line, "kind": name, "verbs": list(sub_verbs)}


@cache
def resources() -> dict[tuple[str, str], list[Resource]]:
    """Everything served, by group and version; the core group first."""
    found: dict[tuple[str, str], list[Resource]] = {}
    for kind in (*kinds.KINDS, kinds.EVENTS_V1_EVENT):
        found.setdefault((kind.group, kind.version), []).extend(_resources_of_kind(kind))
    for (group, version), names in REVIEWS.items():
        reviews = (Kind(group, version, n, f"{n.lower()}s", (), n in _NAMESPACED_REVIEWS) for n in names)
        found.setdefault((group, version), []).extend(_resource(kind, _CREATE_VERBS) for kind in reviews)
    watched = (computed_kinds.ENDPOINTS, computed_kinds.ENDPOINT_SLICES)
    for row in (*watched, computed_kinds.DEFINITIONS, *computed_kinds.UNSERVED):
        line = _resource(row.kind, ("get", "list", "watch") if row in watched else ("get", "list"))
        found.setdefault((row.kind.group, row.kind.version), []).append(line)
    return {key: found[key] for key in sorted(found)}


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
    title = f"{name}/{version}" if name else version
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": title}
    return {**head, "resources": resources()[(name, version)]}


# ---------------------------------------------------------------- the aggregated shape


def aggregated_discovery(named_groups: bool, version: str) -> dict[str, Any]:
    """`GET /api` or (named) `GET /apis` with everything in one answer; `version` is v2 or v2beta1."""
    items = []
    for name in groups() if named_groups else [""]:
        version_entries = [_aggregated_version(name, v) for v in versions(name)]
        items.append({"metadata": {"name": name} if name else {}, "versions": version_entries})
    api = f"apidiscovery.k8s.io/{version}"
    return {"kind": "APIGroupDiscoveryList", "apiVersion": api, "metadata": {}, "items": items}


@cache
def encode_aggregated_discovery(named_groups: bool, version: str) -> bytes:
    """`aggregated_discovery` as JSON, cached."""
    return encode(aggregated_discovery(named_groups, version))


def _aggregated_version(name: str, version: str) -> dict[str, Any]:
    by_name: dict[str, dict[str, Any]] = {}
    is_built_in = name in {k.group for k in kinds.KINDS if not k.custom}
    for resource in resources()[(name, version)]:
        parent, _, sub = resource["name"].partition("/")
        own = {"group": "", "version": ""} if is_built_in else {"group": name, "version": version}
        kind = {key: resource.get(key, own.get(key)) for key in ("group", "version", "kind")}
        if sub:
            part = {"subresource": sub, "responseKind": kind, "verbs": resource["verbs"]}
            by_name[parent].setdefault("subresources", []).append(part)
        else:
            scope = "Namespaced" if resource["namespaced"] else "Cluster"
            line: Resource = {
                "resource": parent,
                "responseKind": kind,
                "scope": scope,
                "singularResource": resource["singularName"],
            }
            lists: Resource = {key: resource[key] for key in ("verbs", "shortNames", "categories") if key in resource}
            by_name[parent] = {**line, **lists}
    return {"version": version, "resources": list(by_name.values()), "freshness": "Current"}


def version_text() -> bytes:
    """`GET /version`, indented like a real server's, because users read it."""
    return msgspec.json.format(encode(server_version()), indent=2)


def server_version() -> dict[str, str]:
    """The content of `GET /version`: the Kubernetes version of the API, and rowlock's."""
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
