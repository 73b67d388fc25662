"""Which words of a real API server's errors ours does not repeat: what Go's libraries print of their own insides.

The contract (`docs/design/apiserver.md`): the HTTP code, the `reason` and each cause's `field` and `reason` are the real
server's, and so is every sentence that is for people. What follows here is not for people. Every comparison with recorded
or live answers sends both sides through `without_internals`, so a comparison stays exact in everything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Internal:
    """One kind of words that are not compared, with an example: the real server's, and ours for the same mistake."""

    name: str
    pattern: str
    stands_for: str
    real: str
    ours: str


_SYNTAX = (
    r"(?:invalid character '(?:\\.|[^'\\]|\\u\w{4})+' (?:looking for|after|in) [a-z]+(?: [a-z:]+)*(?: \(expecting '.+?'\))?"
    r"|unexpected end of JSON input"
    r"|line \d+, column \d+: [A-Z][^\n]+)"
)

INTERNALS = (
    # A patched object, a patch or a reference, dumped as Go's `%+v`, as JSON of the internal type, or as its name.
    Internal(
        "dumped value",
        r"(?s)(patch: |^)Invalid value: \\?\"(?:\{.*?\}|v1\..*?|&.*?|core\..*?|map\[.*?|\[.*?|[A-Z]\w+)\\?\": (?=json: |parsing time|illegal"
        r"|no kind|strict|couldn't|cannot |unrecognized|a value cannot|error decoding|quantities)",
        r"\1Invalid value: OBJECT: ",
        real='patch: Invalid value: "map[data:map[x:1]]": cannot convert int64 to string',
        ours='patch: Invalid value: "ConfigMap": a value cannot be converted: json: cannot unmarshal number into x',
    ),
    # References in the spelling of Go's fields.
    Internal(
        "dumped reference",
        r"Invalid value: \{\"[^\n]*?\}: field is immutable",
        "Invalid value: OBJECT: field is immutable",
        real='Invalid value: {"Kind":"Pod","Namespace":"","Name":"q","UID":""}: field is immutable',
        ours='Invalid value: {"kind":"Pod","name":"q"}: field is immutable',
    ),
    # Structs of several fields together, in the spelling of Go's fields, those that nobody set among them.
    Internal(
        "dumped struct",
        r"((?:Invalid|Duplicate) value: )(?:\{\"[A-Z]\w*\":.*?\}(?=: [a-z]|, [a-z]|\]?$)|\{\"protocol\":\"\w*\",\"port\":\d+\}"
        r"|\{\".*?\}(?=: (?:cannot set|taints must be|unsupported scope|can only be set)))",
        r"\1STRUCT",
        real='Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique',
        ours='Duplicate value: {"key":"a","effect":"NoSchedule"}: taints must be unique',
    ),
    # What `runtime.DefaultUnstructuredConverter` says of values that are no JSON any more; to us they are.
    Internal(
        "converter of values",
        r"(Invalid value: OBJECT: )(?:cannot convert \S+ to .+|unrecognized type: .+|cannot restore .+"
        r"|a value cannot be converted: .+|error decoding from json: .+)",
        r"\1a value cannot be converted",
        real="Invalid value: OBJECT: cannot restore slice from string",
        ours="Invalid value: OBJECT: a value cannot be converted: json: cannot unmarshal string into x",
    ),
    Internal(
        "converter of configurations",
        r"(unable to convert unstructured object to [^:]+): .+",
        r"\1",
        real="unable to convert unstructured object to /v1, Kind=Pod: cannot convert float64 to int32",
        ours="unable to convert unstructured object to /v1, Kind=Pod: json: cannot unmarshal number 1.5 into x",
    ),
    # The value that structured-merge-diff found, as Go prints a pointer to it.
    Internal(
        "value in a configuration",
        r"(: expected (?:map|list|string|boolean|any scalar|numeric \(int or float\)), got) [^\n]+",
        r"\1 SOMETHING",
        real=".data.x: expected string, got &value.valueUnstructured{Value:5}",
        ours=".data.x: expected string, got number",
    ),
    # Maps and lists of a strategic merge patch, as `%v`.
    Internal(
        "patch with a directive",
        r"(unknown patch type: )(?:%!s\(\S+?=(.*?)\)|(\S+))(?: in map: .+)?$",
        r"\1\2\3",
        real="unknown patch type: x in map: map[$patch:x name:c]",
        ours="unknown patch type: x",
    ),
    Internal(
        "element without its key",
        r"(?:map: map\[.*\]|an element of the list) does not contain",
        "an element does not contain",
        real="map: map[image:y] does not contain declared merge key: name",
        ours="an element of the list does not contain declared merge key: name",
    ),
    Internal(
        "list of several types",
        r"(list element types are not identical: ).+",
        r"\1",
        real="list element types are not identical: [[map[name:c]] [x]]",
        ours="list element types are not identical: the list is merged by key, its elements are objects",
    ),
    # A line of the scheme's source, and the names of its internal types.
    Internal(
        "line of the scheme",
        r" in scheme \\?\"pkg/runtime/scheme\.go:\d+\\?\"",
        "",
        real='no kind "X" is registered for version "v9" in scheme "pkg/runtime/scheme.go:110"',
        ours='no kind "X" is registered for version "v9"',
    ),
    Internal(
        "internal types of the scheme",
        r"converting \(\S+\) to \(\S+\): unknown conversion",
        "the kinds differ",
        real="converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ours="the kinds differ",
    ),
    # The key of an object in etcd, and the error's own type.
    Internal(
        "key in etcd",
        r"StorageError: invalid object, Code: \d+, Key: \S+, ResourceVersion: \d+, AdditionalErrorMsg: ",
        "",
        real="StorageError: invalid object, Code: 4, Key: /registry/leases/a/l, ResourceVersion: 0,"
        " AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID in object meta: b",
        ours="Precondition failed: UID in precondition: a, UID in object meta: b",
    ),
    # The body again, as text or as hexadecimal digits.
    Internal(
        "body",
        r"(?s)(the object provided is unrecognized \(must be of type \w+\): .*?)(?: in '.*')? \((?:<empty>|\{.*|[0-9a-f]+(?: \.\.\.)?)\)$",
        r"\1",
        real="the object provided is unrecognized (must be of type Job): Object 'Kind' is missing in '{}' ({})",
        ours="the object provided is unrecognized (must be of type Job): Object 'Kind' is missing",
    ),
    # The type of a whole body in Go. (The sentence that names a field, `Go struct field`, is one that people know: it stays.)
    Internal(
        "type of a body",
        r"into (?:Go value of type (?:struct \{.*\" \}|\S+(?: \{\})?)|an object|a list of operations|an operation)",
        "into what it should be",
        real="json: cannot unmarshal array into Go value of type map[string]interface {}",
        ours="json: cannot unmarshal array into an object",
    ),
    # Where a JSON text is wrong: Go's scanner names the character, ours the place.
    Internal(
        "place of a mistake in JSON",
        _SYNTAX,
        "SYNTAX ERROR",
        real="json parse error: invalid character 'n' looking for beginning of object key string",
        ours="json parse error: line 1, column 2: Expecting property name enclosed in double quotes",
    ),
    # Go's way to write the layout of a time.
    Internal(
        "layout of a time",
        r"(parsing time \\?\"[^\"\n]*\"): (?:not an RFC 3339 time such as \S+|extra text: .+)"
        r"|(parsing time \\?\"[^\"\n]*\") as \\?\"[^\"]+\": cannot parse .+",
        r"\1\2",
        real='parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ours='parsing time "x": not an RFC 3339 time such as 2006-01-02T15:04:05Z',
    ),
)


def without_internals(text: str) -> str:
    """A sentence without what Go's libraries print of their insides."""
    for internal in INTERNALS:
        text = re.sub(internal.pattern, internal.stands_for, text)
    return text


def without_internals_below(value: Any) -> Any:
    """An answer, all of whose sentences are so; those of its causes too, each once: a real server checks some things twice."""
    if isinstance(value, dict):
        found = {key: without_internals_below(inner) for key, inner in value.items()}
        if isinstance(causes := found.get("causes"), list):
            found["causes"] = [cause for index, cause in enumerate(causes) if cause not in causes[:index]]
        return found
    if isinstance(value, list):
        return [without_internals_below(inner) for inner in value]
    return without_internals(value) if isinstance(value, str) else value
