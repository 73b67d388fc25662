"""The verbs as HTTP requests: paths, queries, media types. Pure; `client.py` sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rowlock.api import DeleteOptions, LogOptions, PatchType, WriteOptions
from rowlock.kinds import Kind
from rowlock.objects import Object, micro_timestamp
from rowlock.selectors import FieldSelector, Selector, Term

PATCH_MEDIA_TYPES: Mapping[PatchType, str] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
Query = dict[str, str]


def path(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """`/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/x/status`; without a namespace, all of them."""
    parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if kind.namespaced and namespace:
        parts += ["namespaces", namespace]
    parts.append(kind.plural)
    parts += [part for part in (name, subresource) if part]
    return "/" + "/".join(quote(part, safe="") for part in parts)


def write_query(options: WriteOptions) -> Query:
    """The query of a write: field manager, field validation, dry run."""
    query: Query = {}
    if options.dry_run:
        query["dryRun"] = "All"
    if options.manager:
        query["fieldManager"] = options.manager
    query["fieldValidation"] = options.validation
    return query


def patch_query(options: WriteOptions, type_: PatchType) -> Query:
    """The query of a patch: that of a write, and for apply whether it takes fields from other managers (`force`)."""
    query = write_query(options)
    if type_ == "apply":
        query["force"] = "true" if options.force else "false"
    return query


def delete_body(options: DeleteOptions) -> dict[str, Any]:
    """The `DeleteOptions` body. Proxies drop bodies of DELETE less often than servers misread queries."""
    body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if options.propagation:
        body["propagationPolicy"] = options.propagation
    if options.grace is not None:
        body["gracePeriodSeconds"] = options.grace
    if options.dry_run:
        body["dryRun"] = ["All"]
    preconditions = {"uid": options.uid} if options.uid else {}
    if options.revision is not None:
        preconditions["resourceVersion"] = str(options.revision)
    if preconditions:
        body["preconditions"] = preconditions
    return body


def selector_query(labels: Selector, fields: FieldSelector) -> Query:
    """`labelSelector` and `fieldSelector` of a list or a watch; fields are escaped as `fields.EscapeValue` does."""
    query: Query = {}
    if labels:
        query["labelSelector"] = ",".join(_label_term(t) for t in labels.terms)
    if fields:
        query["fieldSelector"] = ",".join(f"{t.key}{t.op}{_escape_value(_single_value(t))}" for t in fields.terms)
    return query


def log_query(options: LogOptions) -> Query:
    """The query of a pod's log, as `PodLogOptions`."""
    query: Query = {}
    if options.container:
        query["container"] = options.container
    for name in ("follow", "previous", "timestamps"):
        if getattr(options, name):
            query[name] = "true"
    if options.tail is not None:
        query["tailLines"] = str(options.tail)
    if options.limit_bytes is not None:
        query["limitBytes"] = str(options.limit_bytes)
    if options.since is not None:
        query["sinceTime"] = micro_timestamp(options.since)
    return query


def binding_body(pod: str, node: str, annotations: Mapping[str, str] | None, uid: str) -> Object:
    """The `Binding` body. The API server checks `uid` and copies the annotations onto the pod in the same write."""
    meta: dict[str, Any] = {"name": pod}
    if annotations:
        meta["annotations"] = dict(annotations)
    if uid:
        meta["uid"] = uid
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}


def _label_term(term: Term) -> str:
    match term.op:
        case "exists":
            return term.key
        case "absent":
            return f"!{term.key}"
        case "in" | "notin":
            return f"{term.key} {term.op} ({','.join(sorted(term.values))})"
        case _:
            return f"{term.key}{term.op}{_single_value(term)}"


def _single_value(term: Term) -> str:
    return next(iter(term.values))


def _escape_value(value: str) -> str:
    """Escape the characters that would end a value in a field selector."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
