"""Writes that do not fit: what is said of them, and in which order things are looked at.

Every answer here was compared with that of kube-apiserver 1.34.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

STRICT = {"fieldValidation": "Strict"}
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
POD = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


def patched(client: httpx.Client, path: str, media: str, body: str) -> tuple[int, str]:
    answer = client.patch(path, content=body, headers={"content-type": media})
    return answer.status_code, answer.json().get("message", "")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {"conditions": [{"lastProbeTime": 1}]},
            "json: cannot unmarshal number into Go struct field PodCondition.status.conditions.lastProbeTime"
            " of type string",
        ),
        ({"nope": 1}, 'strict decoding error: unknown field "status.nope"'),
        ("x", "json: cannot unmarshal string into Go struct field Pod.status of type v1.PodStatus"),
    ],
)
def test_a_status_that_is_not_kept_is_read_all_the_same(
    client: httpx.Client, space: str, status: Any, said: str
) -> None:
    answer = client.post(f"{space}/pods", json={**POD, "status": status}, params=STRICT)
    wanted = f'Pod in version "v1" cannot be handled as a Pod: {said}'
    assert (answer.status_code, answer.json()["message"]) == (400, wanted)


def test_an_unknown_field_of_a_status_is_warned_of_once(client: httpx.Client, space: str) -> None:
    body = {**POD, "spec": {**POD["spec"], "zip": 1}, "status": {"nope": 1}}  # type: ignore[dict-item]
    answer = client.post(f"{space}/pods", json=body, params={"fieldValidation": "Warn", "dryRun": "All"})
    assert answer.status_code == 201
    warnings = answer.headers.get_list("warning", split_commas=False)
    assert sorted(w.split('"', 1)[1] for w in warnings) == [
        f'unknown field \\"{field}\\""' for field in ("spec.zip", "status.nope")
    ]


def test_a_replacement_is_read_before_what_it_replaces_is_looked_for(client: httpx.Client, space: str) -> None:
    answer = client.put(f"{space}/configmaps/c", json={**CONFIG, "data": {"a": 1}})
    said = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    wanted = f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {said}'
    assert (answer.status_code, answer.json()["message"]) == (400, wanted)
    assert client.put(f"{space}/configmaps/c", json=CONFIG).status_code == 404


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"fieldSelector": "b=1,a=2"}, '"a" is not a known field selector'),
        ({"labelSelector": "a,,"}, "found ',', expected: identifier after ','"),
        ({"labelSelector": ",a"}, "found ',', expected: !, identifier, or 'end of string'"),
    ],
)
def test_the_first_thing_wrong_with_a_selector(
    client: httpx.Client, space: str, query: dict[str, str], said: str
) -> None:
    answer = client.get(f"{space}/configmaps", params=query)
    assert answer.status_code == 400 and said in answer.json()["message"]


NAMELESS = "the name of the object (c based on URL) was undeterminable: name must be provided"


@pytest.mark.parametrize(
    ("media", "body", "code", "said"),
    [
        (STRATEGIC, '{"kind":"X","apiVersion":"v9"}', 200, ""),
        (STRATEGIC, "null", 200, ""),
        (MERGE, "null", 400, "Invalid JSON Patch"),
        (MERGE, '{"kind":null}', 200, ""),
        (MERGE, '{"kind":"X"}', 422, 'no kind "X" is registered for version "v1"'),
        (MERGE, '{"apiVersion":"v9"}', 422, 'no kind "ConfigMap" is registered for version "v9"'),
        (MERGE, '{"metadata":null}', 400, NAMELESS),
        (MERGE, '{"metadata":{"name":null}}', 400, NAMELESS),
        (MERGE, '{"metadata":{"name":1}}', 422, "Go struct field ObjectMeta.metadata.name of type string"),
        (MERGE, '{"metadata":["c"]}', 422, "Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        (MERGE, '{"metadata":{"namespace":""}}', 200, ""),
        (MERGE, '{"metadata":{"namespace":"x"}}', 400, "does not match the namespace sent on the request"),
        (MERGE, '{"metadata":{"name":{}},"kind":[]}', 422, "Go struct field ObjectMeta.metadata.name of type string"),
    ],
)
def test_a_patch_does_not_make_another_object(
    client: httpx.Client, space: str, media: str, body: str, code: int, said: str
) -> None:
    made = client.post(f"{space}/configmaps", json=CONFIG).json()
    got, message = patched(client, f"{space}/configmaps/c", media, body)
    assert got == code and message.endswith(said)
    assert client.get(f"{space}/configmaps/c").json() == made


def test_what_lies_in_no_namespace_has_none_to_select_by(client: httpx.Client) -> None:
    for path in ("/api/v1/nodes", "/apis/scheduling.run.ai/v2/queues"):
        answer = client.get(path, params={"fieldSelector": "metadata.namespace=x"})
        assert (answer.status_code, answer.json()["message"]) == (400, "field label not supported: metadata.namespace")


def test_a_quota_begins_with_a_status(client: httpx.Client, space: str) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}
    assert client.post(f"{space}/resourcequotas", json=body, params={"dryRun": "All"}).json()["status"] == {}


def test_a_custom_object_is_of_one_kind(client: httpx.Client) -> None:
    queue = {"metadata": {"name": "misfit"}, "spec": {}}
    client.post(
        "/apis/scheduling.run.ai/v2/queues", json={"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", **queue}
    )
    path = "/apis/scheduling.run.ai/v2/queues/misfit"
    said = 'X "misfit" is invalid: kind: Invalid value: "X": must be Queue'
    got, message = patched(client, path, MERGE, '{"kind":"X"}')
    assert (got, message.replace(".scheduling.run.ai", "")) == (422, said)
    assert patched(client, path, MERGE, '{"metadata":{"namespace":"x"}}')[0] == 200  # it has none: that is ignored
    client.delete(path)


GONE = "couldn't get version/kind; json parse error: json: cannot unmarshal"
POD_PATCHES: list[tuple[str, int, str]] = [
    (
        '{"spec":{"containers":[{"image":"y"}]}}',
        500,
        "an element of the list does not contain declared merge key: name",
    ),
    ('{"spec":{"containers":[{"name":"c","$patch":"x"}]}}', 500, "unknown patch type: x"),
    (
        '{"spec":{"restartPolicy":5}}',
        422,
        "cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
    ),
    (
        '{"spec":{"restartPolicy":[]}}',
        422,
        "cannot unmarshal array into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
    ),
    (
        '{"spec":{"activeDeadlineSeconds":1.5}}',
        422,
        "cannot unmarshal number 1.5 into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64",
    ),
    (
        '{"metadata":{"uid":5}}',
        422,
        "cannot unmarshal number into Go struct field ObjectMeta.metadata.uid of type types.UID",
    ),
    (
        '{"metadata":{"generation":"x"}}',
        422,
        "cannot unmarshal string into Go struct field ObjectMeta.metadata.generation of type int64",
    ),
    ('{"kind":1}', 422, "cannot unmarshal number into Go struct field .kind of type string"),
    ('{"$retainKeys":5}', 400, "invalid patch format of retainKeys"),
    ('{"metadata":{"labels":{"$patch":"replace","a":"b"}}}', 200, ""),
    ('{"metadata":{"resourceVersion":"0"}}', 200, ""),
]


@pytest.mark.parametrize(("body", "code", "said"), POD_PATCHES)
def test_a_strategic_patch_that_does_not_fit(client: httpx.Client, space: str, body: str, code: int, said: str) -> None:
    made = client.post(f"{space}/pods", json=POD).json()
    got, message = patched(client, f"{space}/pods/p", STRATEGIC, body)
    assert got == code and message.endswith(said)
    assert client.get(f"{space}/pods/p").json() == made  # a map with a directive is no map to begin with


@pytest.mark.parametrize(
    ("patch", "code", "said"),
    [
        ('{"kind":1}', 422, f"{GONE} number into Go struct field .kind of type string"),
        ('{"apiVersion":2}', 422, f"{GONE} number into Go struct field .apiVersion of type string"),
        ('{"metadata":{"creationTimestamp":"x"}}', 422, "not an RFC 3339 time such as 2006-01-02T15:04:05Z"),
        ('{"metadata":{"uid":5}}', 422, "Go struct field ObjectMeta.metadata.uid of type types.UID"),
        ('{"data":{"a":1}}', 422, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
    ],
)
def test_a_merge_patch_is_blamed_with_what_it_makes(
    client: httpx.Client, space: str, patch: str, code: int, said: str
) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    got, message = patched(client, f"{space}/configmaps/c", MERGE, patch)
    assert (got, message.endswith(said)) == (code, True)
    assert message.startswith(' "" is invalid: patch: Invalid value: "ConfigMap": ')


def test_a_copy_of_what_is_not_there_is_nothing(client: httpx.Client, space: str) -> None:
    client.post(f"{space}/configmaps", json=CONFIG)
    patch = '[{"op":"copy","from":"/data/none","path":"/data/b"}]'
    got, _ = patched(client, f"{space}/configmaps/c", "application/json-patch+json", patch)
    assert (got, client.get(f"{space}/configmaps/c").json()["data"]) == (200, {"a": "1", "b": ""})
