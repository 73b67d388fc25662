"""Go's sentences about JSON, as a real API server says them."""

from __future__ import annotations

import httpx
import pytest

from rowlock.apiserver.schema import go_errors


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "unexpected end of JSON input"),
        ('{"a": 1', "unexpected end of JSON input"),
        ('{"a', "unexpected end of JSON input"),
        ("tru", "unexpected end of JSON input"),
        ("{nope", "invalid character 'n' looking for beginning of object key string"),
        ("nope", "invalid character 'o' in literal null (expecting 'u')"),
        ("[1 2]", "invalid character '2' after array element"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a": "}[" 1}', "invalid character '1' after object key:value pair"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("{'a': 1}", "invalid character '\\'' looking for beginning of object key string"),
        ("NaN", "invalid character 'N' looking for beginning of value"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ('{"a": 1}', ""),
    ],
)
def test_what_is_wrong_with_a_text(text: str, sentence: str) -> None:
    assert go_errors.json_error(text.encode()) == sentence


def test_a_long_body_is_not_repeated_whole() -> None:
    said = go_errors.not_an_object_error("Pod", b"[" + b" " * 100 + b"]", [])
    assert said.endswith(" (5b" + "20" * 29 + " ...)")


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
    key = "invalid character 'o' looking for beginning of object key string"
    for body, why in (("{oops", key), ("[", "unexpected end of JSON input")):
        answer = client.patch(f"{space}/configmaps/a", content=body, headers=headers)
        assert (answer.status_code, answer.json()["message"]) == (400, said + why)


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"data": {"x": 1}}, '"map[data:map[x:1]]": cannot convert int64 to string'),
        ({"data": {"x": True}}, '"map[data:map[x:true]]": unrecognized type: string'),
        ({"data": {"x": 1.5}}, '"map[data:map[x:1.5]]": unrecognized type: string'),
        ({"data": "x"}, '"map[data:x]": cannot restore map from string'),
        ({"data": [1]}, '"map[data:[1]]": cannot restore map from slice'),
        ({"immutable": "yes"}, '"map[immutable:yes]": unrecognized type: bool'),
        ({"metadata": {"finalizers": "x"}}, '"map[metadata:map[finalizers:x]]": cannot restore slice from string'),
        (
            {"metadata": {"labels": {"a": "b", "z": None}, "annotations": {"q": 2}}},
            '"map[metadata:map[annotations:map[q:2] labels:map[a:b]]]": cannot convert int64 to string',
        ),
    ],
)
def test_strategic(client: httpx.Client, space: str, patch: object, said: str) -> None:
    client.post(f"{space}/configmaps", json={"metadata": {"name": "c"}, "data": {"x": "1"}})
    kind = {"content-type": "application/strategic-merge-patch+json"}
    answer = client.patch(f"{space}/configmaps/c", json=patch, headers=kind)
    assert (answer.status_code, answer.json()["message"]) == (422, f' "" is invalid: patch: Invalid value: {said}')
