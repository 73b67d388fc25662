"""Requests at random, made from our own tables: paths, queries, headers, bodies, patches of all types, selectors."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fuzz.values import NAMES, NUMBERS, TEXTS, Grower, junk, text_of

from rowlock import kinds
from rowlock.apiserver.http import requests
from rowlock.kinds import Kind

SPACE = "fuzzed"
PATCHES = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)  # fmt: skip
MEDIA = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
    "*/*",
    "a/b;c=d",
)
ACCEPT = (
    "application/json", "*/*", "", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf, */*",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "text/html", ";;;,,", "application/json;as=",
)  # fmt: skip
ABOUT = (
    "/", "/api", "/apis", "/api/v1", "/apis/kubeflow.org", "/apis/kubeflow.org/v1", "/openapi/v2", "/openapi/v3",
    "/openapi/v3/api/v1", "/version", "/healthz", "/readyz?verbose", "/apis/x/y", "/api/v1/namespaces//pods", "/%00",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/limitranges",
)  # fmt: skip
OPERATORS = ("=", "==", "!=", " in ", " notin ", ">", "<", "")


@dataclass(frozen=True)
class Request:
    """One request; `target` is the path of the object that it is about, if it is about one."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    target: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.headers} {self.body[:3000]!r}"


def sequence(seed: str, count: int | None = None) -> Iterator[tuple[int, Request]]:
    """Numbered requests; the same seed gives the same ones for ever, each from its own generator."""
    number = 0
    while count is None or number < count:
        yield number, made(Random(f"{seed}:{number}"))
        number += 1


def made(random: Random) -> Request:
    roll = random.random()
    if roll < 0.03:
        return _about(random)
    kind = random.choice((*kinds.KINDS, kinds.EVENTS_V1_EVENT))
    if kind is kinds.NAMESPACE and random.random() < 0.9:
        kind = random.choice((kinds.CONFIG_MAP, kinds.POD))
    name = random.choice(NAMES) if random.random() < 0.93 else random.choice(TEXTS)
    if kind is kinds.NAMESPACE:
        name = "fuzzed-" + name
    if roll < 0.40:
        return _create(random, kind, name)
    if roll < 0.65:
        return _patch(random, kind, name)
    if roll < 0.75:
        return _update(random, kind, name)
    if roll < 0.88:
        return _read(random, kind, name)
    if roll < 0.96:
        return _delete(random, kind, name)
    return _subresource(random, kind, name)


def collection(kind: Kind, space: str = SPACE) -> str:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{base}/namespaces/{space}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"


def _object(kind: Kind, name: str) -> str:
    return f"{collection(kind)}/{urllib.parse.quote(name, safe='', errors='surrogatepass')}"


def _headers(random: Random, **more: str) -> dict[str, str]:
    found = {"Accept": random.choice(ACCEPT[:4]) if random.random() < 0.9 else random.choice(ACCEPT)}
    if random.random() < 0.03:
        found["Impersonate-User"] = random.choice(("somebody", "", "system:serviceaccount:default:default"))
    if random.random() < 0.03:
        found["User-Agent"] = random.choice(("", "x" * 500, "a/b (c)"))
    return {**found, **more}


def _query(random: Random, allowed: frozenset[str], *sure: tuple[str, str]) -> str:
    """Mostly what this request knows, with values that are mostly plausible."""
    found = list(sure)
    while random.random() < 0.35:
        name = random.choice(sorted(allowed)) if random.random() < 0.95 else random.choice(TEXTS)
        found.append((name, _parameter(random, name)))
    return "?" + urllib.parse.urlencode(found, errors="surrogatepass") if found else ""


def _parameter(random: Random, name: str) -> str:
    plausible: dict[str, tuple[str, ...]] = {
        "limit": ("1", "2", "0", "-1", "9999999999999999999"),
        "continue": ("", "abc", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"),
        "dryRun": ("All", ""),
        "fieldValidation": ("Strict", "Warn", "Ignore"),
        "fieldManager": ("fuzz", "x" * 200),
        "propagationPolicy": ("Orphan", "Background", "Foreground"),
        "gracePeriodSeconds": ("0", "1", "-1"),
        "resourceVersion": ("0", "1", "5", "99999999"),
        "resourceVersionMatch": ("Exact", "NotOlderThan"),
        "timeoutSeconds": ("1",),
        "watch": ("false", "0"),
        "force": ("true", "false"),
    }
    if name in ("labelSelector", "fieldSelector"):
        return selector(random)
    if name in plausible and random.random() < 0.85:
        return random.choice(plausible[name])
    return str(random.choice((*TEXTS, *NUMBERS)))


def selector(random: Random) -> str:
    """One that may be one."""
    keys = ("app", "metadata.name", "status.phase", "spec.nodeName", "a/b", "!x", "", *random.sample(TEXTS, 1))
    terms = []
    for _ in range(random.choice((1, 1, 2, 3))):
        value = random.choice(("x", "(a,b)", "(a", "", "1", "!", *random.sample(TEXTS, 1)))
        terms.append(random.choice(keys) + random.choice(OPERATORS) + value)
    return random.choice((",", ", ", ",,", ";")).join(terms)


# ---------------------------------------------------------------- kinds of requests


def _about(random: Random) -> Request:
    path = random.choice(ABOUT)
    method = random.choice(("GET", "GET", "GET", "POST", "OPTIONS", "HEAD", "DELETE", "TRACE"))
    body = text_of(junk(random), random) if method == "POST" else b""
    return Request(method, path, _headers(random), body)


def _create(random: Random, kind: Kind, name: str) -> Request:
    content = Grower(random).body(kind, SPACE, name)
    query = _query(random, requests.WRITE_PARAMETERS)
    media = "application/json" if random.random() < 0.95 else random.choice(MEDIA)
    body = text_of(content, random)
    target = _object(kind, name)
    return Request("POST", collection(kind) + query, _headers(random, **{"Content-Type": media}), body, target)


def _update(random: Random, kind: Kind, name: str) -> Request:
    content = Grower(random).body(kind, SPACE, name)
    path = _object(kind, name)
    head = _headers(random, **{"Content-Type": "application/json"})
    return Request("PUT", path + _query(random, requests.WRITE_PARAMETERS), head, text_of(content, random), path)


def _patch(random: Random, kind: Kind, name: str) -> Request:
    media = random.choice(PATCHES) if random.random() < 0.97 else random.choice(MEDIA)
    grower = Grower(random)
    content: Any
    if media == PATCHES[0]:
        content = [operation(random) for _ in range(random.choice((0, 1, 2, 4)))]
    else:
        content = grower.body(kind, SPACE, name)
    if media == PATCHES[2]:
        content = directed(random, content)
    sure = [("fieldManager", "fuzz")] if media == PATCHES[3] else []
    if media == PATCHES[3] and random.random() < 0.5:
        sure.append(("force", "true"))
    path = _object(kind, name)
    part = "/status" if random.random() < 0.15 else ""
    query = _query(random, requests.PATCH_PARAMETERS, *sure)
    return Request(
        "PATCH", path + part + query, _headers(random, **{"Content-Type": media}), text_of(content, random), path
    )


def operation(random: Random) -> Any:
    """One step of a JSON patch."""
    paths = (
        "/metadata/labels", "/metadata/labels/a", "/spec", "/spec/containers/0/image", "/spec/containers/-", "/data/x", "",
        "/metadata/name", "/metadata/annotations/a~1b", "/~", "x", "/spec/containers/99", "/metadata/managedFields", "/kind",
        "/metadata/finalizers/0", "/spec/containers/1e3", "/-",
    )  # fmt: skip
    if random.random() < 0.05:
        return junk(random)
    made: dict[str, Any] = {"op": random.choice(("add", "replace", "remove", "test", "copy", "move", "nonsense"))}
    made["path"] = random.choice(paths)
    if random.random() < 0.8:
        made["value"] = random.choice((junk(random), {"app": "x"}, "x", 3))
    if made["op"] in ("copy", "move") or random.random() < 0.1:
        made["from"] = random.choice(paths)
    return made


def directed(random: Random, value: Any, depth: int = 0) -> Any:
    """A strategic merge patch with its directives."""
    if depth > 50:
        return value
    if isinstance(value, dict):
        made = {k: directed(random, v, depth + 1) for k, v in value.items()}
        if random.random() < 0.1:
            made["$patch"] = random.choice(("delete", "replace", "merge", "x", 3))
        if random.random() < 0.1:
            field = random.choice(("containers", "finalizers", "x", "volumes"))
            made[random.choice(("$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$x/")) + field] = (
                random.choice(([{"name": "a"}], ["a"], {}, None, [1], "x"))
            )
        return made
    return [directed(random, v, depth + 1) for v in value] if isinstance(value, list) else value


def _read(random: Random, kind: Kind, name: str) -> Request:
    if random.random() < 0.4:
        return Request("GET", _object(kind, name) + _query(random, requests.READ_PARAMETERS), _headers(random))
    path = collection(kind) if random.random() < 0.7 else collection(kind, random.choice(("default", "none", "")))
    if random.random() < 0.08:
        sure = [("watch", "true"), ("timeoutSeconds", "1")]
        if random.random() < 0.5:
            sure += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        return Request(
            "GET", path + _query(random, requests.LIST_PARAMETERS - {"timeoutSeconds"}, *sure), _headers(random)
        )
    return Request("GET", path + _query(random, requests.LIST_PARAMETERS - {"watch"}), _headers(random))


def _delete(random: Random, kind: Kind, name: str) -> Request:
    whole = random.random() < 0.1 and kind is not kinds.NAMESPACE
    if not kind.namespaced and kind is not kinds.NAMESPACE and whole:
        whole = False
    body = b""
    if random.random() < 0.5:
        options = {
            "kind": random.choice(("DeleteOptions", "x")), "gracePeriodSeconds": random.choice((0, 1, "x", -5)),
            "propagationPolicy": random.choice(("Orphan", "Foreground", "x", None)),
            "preconditions": random.choice(({"uid": "x"}, {}, [], {"resourceVersion": "1"})), "dryRun": random.choice((["All"], [], 3)),
        }  # fmt: skip
        body = text_of({k: v for k, v in options.items() if random.random() < 0.5}, random)
    allowed = requests.DELETE_COLLECTION_PARAMETERS if whole else requests.DELETE_PARAMETERS
    path = collection(kind) if whole else _object(kind, name)
    return Request("DELETE", path + _query(random, allowed), _headers(random), body)


def _subresource(random: Random, kind: Kind, name: str) -> Request:
    part = random.choice(
        (*sorted(kind.subresources), "status", "scale", "log", "exec", "nonsense", "binding", "eviction")
    )
    method = random.choice(("GET", "PUT", "POST", "PATCH", "DELETE"))
    bodies: tuple[Any, ...] = (
        {"spec": {"replicas": random.choice(NUMBERS)}}, {"target": {"kind": "Node", "name": "n"}}, {}, junk(random),
        {"kind": "Binding", "target": {"name": 3}}, {"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": {}},
    )  # fmt: skip
    query = _query(
        random, frozenset({"tailLines", "limitBytes", "sinceSeconds", "sinceTime", "container", "follow", "command"})
    )
    content = json.dumps(random.choice(bodies)).encode() if method != "GET" else b""
    return Request(method, f"{_object(kind, name)}/{part}{query}", _headers(random), content)
