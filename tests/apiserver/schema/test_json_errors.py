"""What is said of bodies that are no JSON, and of values that their types cannot hold."""

from __future__ import annotations

import httpx
import pytest

from rowlock.apiserver.schema import json_errors


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1, column 1: Expecting value"),
        ('{"a": 1', "line 1, column 8: Expecting ',' delimiter"),
        ("{nope", "line 1, column 2: Expecting property name enclosed in double quotes"),
        ('{\n "a" 1}', "line 2, column 6: Expecting ':' delimiter"),
        ("{} x", "line 1, column 4: Extra data"),
        ("NaN", "NaN is not JSON"),
        ("[" * 100_000, "it is nested too deeply"),
        ('{"a": 1}', ""),
    ],
)
def test_what_is_wrong_with_a_text(text: str, sentence: str) -> None:
    assert json_errors.json_error(text.encode()) == sentence


def test_an_answer_in_yaml(client: httpx.Client, space: str) -> None:
    yaml = pytest.importorskip("yaml")
    body = {"metadata": {"name": "a"}, "data": {"x": "ü: 1"}}
    accept = {"accept": "application/yaml"}
    made = client.post(f"{space}/configmaps", json=body, headers=accept)
    assert (made.status_code, made.headers["content-type"]) == (201, "application/yaml")
    assert yaml.safe_load(made.text)["data"] == {"x": "ü: 1"}
    missing = client.get(f"{space}/configmaps/none", headers=accept)
    assert (missing.status_code, yaml.safe_load(missing.text)["reason"]) == (404, "NotFound")
    both = client.get(f"{space}/configmaps/a", headers={"accept": "application/json, application/yaml"})
    assert both.headers["content-type"] == "application/json"
    watch = client.get(f"{space}/configmaps", params={"watch": "1"}, headers=accept)
    assert watch.status_code == 406 and "not of YAML" in watch.text


@pytest.mark.parametrize(("kind", "said"), [("merge-", "error decoding patch: "), ("strategic-merge-", "")])
def test_a_patch_that_is_no_json(client: httpx.Client, space: str, kind: str, said: str) -> None:
    client.post(f"{space}/configmaps", json={"metadata": {"name": "a"}})
    headers = {"content-type": f"application/{kind}patch+json"}
    for body, why in (("{oops", "line 1, column 2: Expecting property name enclosed in double quotes"),
                      ("[", "line 1, column 2: Expecting value")):  # fmt: skip
        answer = client.patch(f"{space}/configmaps/a", content=body, headers=headers)
        assert (answer.status_code, answer.json()["message"]) == (400, said + why)


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"data": {"x": 1}}, "number into Go struct field ConfigMap.data of type string"),
        ({"data": {"x": True}}, "bool into Go struct field ConfigMap.data of type string"),
        ({"data": {"x": 1.5}}, "number into Go struct field ConfigMap.data of type string"),
        ({"data": "x"}, "string into Go struct field ConfigMap.data of type map[string]string"),
        ({"data": [1]}, "array into Go struct field ConfigMap.data of type map[string]string"),
        ({"immutable": "yes"}, "string into Go struct field ConfigMap.immutable of type bool"),
        ({"metadata": {"finalizers": "x"}}, "string into Go struct field ObjectMeta.metadata.finalizers of type []string"),
    ],
)  # fmt: skip
def test_strategic(client: httpx.Client, space: str, patch: object, why: str) -> None:
    client.post(f"{space}/configmaps", json={"metadata": {"name": "c"}, "data": {"x": "1"}})
    kind = {"content-type": "application/strategic-merge-patch+json"}
    answer = client.patch(f"{space}/configmaps/c", json=patch, headers=kind)
    said = f'Invalid value: "ConfigMap": a value cannot be converted: json: cannot unmarshal {why}'
    assert (answer.status_code, answer.json()["message"]) == (422, f' "" is invalid: patch: {said}')
    assert answer.json()["details"]["causes"] == [{"reason": "FieldValueInvalid", "message": said, "field": "patch"}]
