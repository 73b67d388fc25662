"""`kubectl explain` has a sentence for the fields that people write."""

from __future__ import annotations

import json
from typing import Any

from rowlock.apiserver.discovery import openapi
from rowlock.apiserver.schema import types


def properties(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(properties, node)) if node else set()
    if not isinstance(node, dict):
        return set()
    own = set(node["properties"]) if isinstance(node.get("properties"), dict) else set()
    return own.union(*map(properties, node.values()))


def test_every_explained_field_is_there() -> None:
    known = set().union(*(properties(types.schema(name)) for name in types.type_names()))
    assert set(openapi.descriptions().fields) <= known


def test_texts_are_sentences() -> None:
    assert [text for text in openapi.descriptions().fields.values() if not text.endswith(".")] == []


def test_no_field_of_a_jobs_run_policy_is_left_unexplained() -> None:
    found = json.loads(openapi.encode_document("apis/kubeflow.org/v1"))["components"]["schemas"]
    job = next(body for name, body in found.items() if name.endswith(".PyTorchJob"))
    policy = job["properties"]["spec"]["properties"]["runPolicy"]
    assert policy["description"]
    assert [name for name, field in policy["properties"].items() if "description" not in field] == []
