"""A small, seeded share of `make fuzz`; and a test for everything that it ever found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fuzz.checks import Attack, attacked, fuzz
from tests.fuzz.jobs import SPECS, followed, head, play_at_random
from tests.fuzz.parsers import parse_at_random
from tests.fuzz.requests import Request

from rowlock import quantity
from rowlock.errors import BadRequest
from rowlock.kinds import Kind

CONFIGS = "/api/v1/namespaces/default/configmaps"
JSON = {"Content-Type": "application/json"}
MERGE = {"Content-Type": "application/merge-patch+json"}


def test_requests_at_random_find_nothing(tmp_path: Path) -> None:
    found = fuzz(tmp_path, "make test", seconds=5.0, count=400)
    assert not found.wrong, "\n\n".join(found.wrong)
    assert found.asked and {200, 201, 400, 404} <= set(found.statuses), "the requests do not reach the server any more"


def test_parsers_find_nothing() -> None:
    wrong = parse_at_random("make test", seconds=2.0, count=200)
    assert not wrong, "\n".join(wrong)


def test_jobs_that_are_almost_right_break_no_controller() -> None:
    seen, wrong = play_at_random("make test", seconds=30.0, count=80)
    assert not wrong, "\n".join(wrong)
    for kind in SPECS:
        assert seen.get((kind.name, True)) and seen.get((kind.name, False)), seen


@pytest.mark.parametrize("kind", SPECS, ids=lambda kind: kind.name)
def test_the_jobs_are_right_before_something_is_replaced(kind: Kind) -> None:
    obj = {**head(kind), "metadata": {"name": "j", "namespace": "default"}, "spec": SPECS[kind]}
    assert asyncio.run(followed(kind, obj))


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    with attacked(tmp_path_factory.mktemp("attacked")) as (_, made):
        yield made


def post(attack: Attack, body: bytes, path: str = CONFIGS, **headers: str) -> tuple[int, dict[str, object]]:
    status, told = attack.ask(Request("POST", path, {**JSON, **headers}, body))
    return status, json.loads(told)


def config(name: str, rest: str = "") -> bytes:
    return f'{{"metadata": {{"name": "{name}"}}{rest}}}'.encode()


def test_half_a_surrogate_is_read_as_go_reads_it(attack: Attack) -> None:
    status, made = post(attack, config("half", ', "data": {"a": "\\ud800x"}'))
    assert (status, made["data"]) == (201, {"a": "\ufffdx"})
    status, told = post(attack, config("\\ud800"))
    assert status == 422, told


def test_bytes_that_are_no_text_are_replaced(attack: Attack) -> None:
    status, made = post(attack, config("latin", ', "data": {"a": "?"}').replace(b"?", b"\xe9"))
    assert (status, made["data"]) == (201, {"a": "\ufffd"})
    status, _ = attack.ask(Request("PATCH", f"{CONFIGS}/latin", MERGE, b"\x9e{}"))
    assert status == 400


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_number_that_no_float_holds_is_refused(attack: Attack, number: str) -> None:
    assert post(attack, config("big", f', "data": {{"a": {number}}}'))[0] == 400


@pytest.mark.parametrize(
    "deep", [b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 100_000, b'{"a":' * 300 + b"1" + b"}" * 300]
)
def test_a_body_without_a_floor_is_refused(attack: Attack, deep: bytes) -> None:
    assert post(attack, deep)[0] == 400
    for media in ("application/merge-patch+json", "application/apply-patch+yaml"):
        path = f"{CONFIGS}/deep?fieldManager=x"
        assert attack.ask(Request("PATCH", path, {"Content-Type": media}, deep))[0] in (400, 404)


@pytest.mark.parametrize("yaml", [b"metadata: {name: y}\ndata: {1: x}", b"metadata: {name: y2}\ndata: {true: x}"])
def test_yaml_keys_are_text(attack: Attack, yaml: bytes) -> None:
    status, told = attack.ask(Request("POST", CONFIGS, {"Content-Type": "application/yaml"}, yaml))
    assert status == 201, told


@pytest.mark.parametrize(
    "yaml", [b"metadata: {name: y3}\ndata: {a: .inf}", b"? [a]\n: b", b"a: !!set {x}", b"a: !!int x"]
)
def test_yaml_that_is_no_json_is_refused(attack: Attack, yaml: bytes) -> None:
    assert attack.ask(Request("POST", CONFIGS, {"Content-Type": "application/yaml"}, yaml))[0] in (400, 422)


def test_base64_of_other_alphabets_is_refused(attack: Attack) -> None:
    status, told = post(attack, config("b64", ', "binaryData": {"a": "é"}'))
    assert (status, "illegal base64" in str(told["message"])) == (400, True)


@pytest.mark.parametrize("limit", ["9223372036854775807", "9999999999999999999", "-99999999999999999999", "٣", " 1"])
def test_limits_of_any_size(attack: Attack, limit: str) -> None:
    from urllib.parse import quote

    status, _ = attack.get(f"{CONFIGS}?limit={quote(limit)}")
    assert status in (200, 400)


@pytest.mark.parametrize("text", ["1e9999999999", "1e-9999999999", "9" * 5000, "1e101"])
def test_a_quantity_that_would_fill_the_memory_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        quantity.canonicalize(text)


def test_who_cannot_read_the_answer_writes_nothing(attack: Attack) -> None:
    status, _ = post(attack, config("unreadable"), Accept="text/html")
    assert status == 406
    assert attack.get(f"{CONFIGS}/unreadable")[0] == 404


def test_a_dry_run_asked_for_twice_is_no_write(attack: Attack) -> None:
    assert post(attack, config("twice"), f"{CONFIGS}?dryRun=All&dryRun=")[0] == 422
    assert post(attack, config("twice"), f"{CONFIGS}?dryRun=All&dryRun=All")[0] == 201
    assert attack.get(f"{CONFIGS}/twice")[0] == 404


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ('"x"', 422),
        ("[3]", 422),
        ('[{"manager":"m","fieldsV1":{"f:a":3}}]', 200),  # a list with an entry that cannot be read is not taken
        ('[{"manager":"m","fieldsV1":{"k:{":{}}}]', 200),
    ],
)
def test_managed_fields_that_nobody_could_have_written(attack: Attack, fields: str, status: int) -> None:
    post(attack, config("managed"))
    patch = f'{{"metadata": {{"managedFields": {fields}}}}}'.encode()
    assert attack.ask(Request("PATCH", f"{CONFIGS}/managed", MERGE, patch))[0] == status
    copied = b'[{"op": "copy", "from": "", "path": "/metadata/managedFields"}]'
    assert (
        attack.ask(Request("PATCH", f"{CONFIGS}/managed", {"Content-Type": "application/json-patch+json"}, copied))[0]
        == 422
    )


def test_a_warning_about_an_unprintable_field_is_printable(attack: Attack) -> None:
    status, _ = post(attack, config("nul", ', "a\\u0000\\u0007b": 1'))
    assert status == 201


def test_a_namespace_whose_spec_is_none(attack: Attack) -> None:
    body = b'{"metadata": {"name": "odd"}, "spec": %s}'
    for spec in (b"1", b'"x"', b"[1]", b"true"):
        status, told = post(attack, body % spec, "/api/v1/namespaces")
        assert (status, "cannot unmarshal" in str(told["message"])) == (400, True), told
    assert post(attack, body % b"null", "/api/v1/namespaces")[0] == 201
    put = Request("PUT", "/api/v1/namespaces/odd", JSON, body % b"1")
    assert attack.ask(put)[0] == 400


def test_a_scale_is_patched_with_json(attack: Attack) -> None:
    path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/absent/scale"
    assert attack.ask(Request("PATCH", path, MERGE, b"\xff\xfe"))[0] in (400, 404)


@pytest.mark.parametrize("wrong", ["5", '"text"', "[1]", '{"a": 1}', "[null]", "true", "[[]]"])
@pytest.mark.parametrize(
    "path", [CONFIGS, CONFIGS.replace("/api/v1", "/apis/kubeflow.org/v1").replace("configmaps", "jaxjobs")]
)
def test_finalizers_of_another_type(attack: Attack, path: str, wrong: str) -> None:
    """Found by seed 404: an object that is being deleted is asked for them before its type is."""
    name = f"held-{abs(hash((path, wrong)))}"
    spec, kind = b"", ""
    if "jaxjobs" in path:
        kind = '"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", '
        template = '{"spec": {"containers": [{"name": "jax", "image": "i"}]}}'
        spec = f', "spec": {{"jaxReplicaSpecs": {{"Worker": {{"template": {template}}}}}}}'.encode()
    body = f'{{{kind}"metadata": {{"name": "{name}", "finalizers": ["example.com/x"]}}'.encode() + spec + b"}"
    status, told = post(attack, body, path)
    assert status == 201, told
    assert attack.ask(Request("DELETE", f"{path}/{name}", {}, b""))[0] == 200
    merge = {"Content-Type": "application/merge-patch+json"}
    patch = f'{{"metadata": {{"finalizers": {wrong}}}}}'.encode()
    status, said = attack.ask(Request("PATCH", f"{path}/{name}", merge, patch))
    assert status in (400, 422), said
    freed = attack.ask(Request("PATCH", f"{path}/{name}", merge, b'{"metadata": {"finalizers": null}}'))
    assert freed[0] == 200 and attack.get(f"{path}/{name}")[0] == 404
