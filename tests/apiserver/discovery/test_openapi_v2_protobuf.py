"""The bytes that kubectl reads as OpenAPI v2, by hand; that kubectl understands the whole of them is in tests/kubectl."""

from __future__ import annotations

from rowlock.apiserver.discovery import openapi, openapi_v2_protobuf


def part(number: int, data: bytes) -> bytes:
    assert number < 16 and len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def test_info_and_version() -> None:
    info = part(1, b"t") + part(2, b"1")
    found = openapi_v2_protobuf.encode_document({"swagger": "2.0", "info": {"title": "t", "version": "1"}})
    assert found == part(1, b"2.0") + part(2, info)


def test_a_definition_with_what_definitions_have() -> None:
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"$ref": "#/definitions/A"}},
        "x-of-ours": {"deep": [1]},
        "made-up": "left out",
    }
    # Numbers above 15 take two bytes: 19 (required), 22 (type), 25 (properties), 31 (extensions).
    reference = part(1, b"a") + part(2, part(1, b"#/definitions/A"))
    extension = part(1, b"x-of-ours") + part(2, part(2, b'{"deep":[1]}'))

    def far(number: int, data: bytes) -> bytes:
        key = number << 3 | 2
        return bytes([key & 0x7F | 0x80, key >> 7, len(data)]) + data

    body = (
        far(22, part(1, b"object")) + far(19, b"a") + far(19, b"b") + far(25, part(1, reference)) + far(31, extension)
    )
    assert openapi_v2_protobuf.encode_document({"definitions": {"T": schema}}) == part(
        9, part(1, part(1, b"T") + part(2, body))
    )


def test_additional_properties_are_a_schema_or_yes_or_no() -> None:
    def maps(json: object) -> bytes:
        return openapi_v2_protobuf.encode_document({"definitions": {"T": {"additionalProperties": json}}})

    def wrapped(inner: bytes) -> bytes:
        return part(9, part(1, part(1, b"T") + part(2, bytes([0xAA, 0x01, len(inner)]) + inner)))

    assert maps({"format": "x"}) == wrapped(part(1, part(2, b"x")))
    assert maps(True) == wrapped(b"\x10\x01")
    assert maps(False) == wrapped(b"\x10\x00")


def test_no_schema_of_version_2_has_what_version_2_lacks() -> None:
    def walk(node: object) -> None:
        if isinstance(node, list):
            for one in node:
                walk(one)
        if isinstance(node, dict):
            assert not {"anyOf", "oneOf", "nullable"} & {k for k, v in node.items() if not isinstance(v, dict)}, node
            for value in node.values():
                walk(value)

    definitions = openapi.v2_document()["definitions"]
    walk(definitions)
    assert definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] == {"type": "string"}
    assert definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] == {
        "type": "string",
        "format": "int-or-string",
    }
