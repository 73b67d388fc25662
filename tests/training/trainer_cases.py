"""The recorded cases of JobSet and Kubeflow Trainer, as tests of deciding code read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.evidence import TRAINER_CASES

from rowlock.apiserver.schema import crd_schema, types
from rowlock.apiserver.schema.decoding import Walk
from rowlock.kinds import Kind

Json = Any
_EMPTY: tuple[Any, ...] = (None, {}, [])


def cases(name: str) -> list[Json]:
    """Those of one family: what was given to us, and what we recorded (`-more`)."""
    files = (TRAINER_CASES / f"{name}{more}.json" for more in ("", "-more"))
    return [case for file in files if file.exists() for case in json.loads(file.read_text())["cases"]]


def title(case: Json) -> str:
    return f"{case['family']} / {case['name']}"


def stored(kind: Kind, obj: Json, space: str = "ns") -> Json:
    """An object as the API server keeps it: what the schema declares, with its defaults."""
    rest = {key: value for key, value in obj.items() if key != "metadata"}
    pruned = crd_schema.prune(rest, types.schema_of(kind), Walk())
    metadata = {"namespace": space, "uid": "uid-of-it", **obj["metadata"]}
    return {**pruned, "metadata": metadata, "apiVersion": kind.api_version, "kind": kind.name}


def compact(value: Json) -> Json:
    """Without empty values and the defaults that the recorder left out."""
    if isinstance(value, list):
        return [compact(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: compact(one) for key, one in value.items() if one not in _EMPTY and (key, one) != ("protocol", "TCP")}


def without_ids(value: Json) -> Json:
    """A value whose uids, digests and namespace (before `_`) are as the recorder wrote them."""
    text = json.dumps(value).replace("uid-of-it", "$UID").replace('"ns_', '"$NS_')
    return json.loads(re.sub(r"\b[0-9a-f]{40}\b", "$SHA1", text))


def steps(name: str) -> Iterator[tuple[Json, Json]]:
    """Each case of a file with each of its steps that has a record."""
    for case in cases(name):
        for step in case["steps"]:
            if step.get("variants"):
                yield case, step
