"""What every object can be asked."""

from __future__ import annotations

import pytest

from rowlock.objects import MAX_PATCH_DEPTH, Object, keep_latest, written_json


def test_what_was_said_of_a_version_is_kept_until_there_is_another() -> None:
    asked: list[Object] = []

    @keep_latest(2)
    def number(base: str, obj: Object) -> int:
        asked.append(obj)
        return len(asked)

    one, other = ({"metadata": {"uid": uid}} for uid in ("1", "2"))
    assert [number("a", one), number("a", other), number("a", one), number("a", other)] == [1, 2, 1, 2]
    assert number("b", one) == 3, "another question"
    newer = {"metadata": {"uid": "1"}}
    assert newer == one and number("a", newer) == 4, "equal, and yet written anew"
    assert number("a", newer) == 4
    third: Object = {"metadata": {"uid": "3"}}
    assert number("a", third) == 5 and number("a", other) == 6, "only so many are kept"
    assert [number("a", {}), number("a", {})] == [7, 8], "what was never stored is nobody's version"


@pytest.mark.parametrize("depth", [MAX_PATCH_DEPTH + 1, 900, 50_000])
@pytest.mark.parametrize("pair", ["[]", '{"a":}'])
def test_json_that_is_nested_without_end_is_none(depth: int, pair: str) -> None:
    assert written_json(pair[:-1] * depth + "1" + pair[-1] * depth) is None


@pytest.mark.parametrize("text", [None, "", "null", "{", "[1,]", "1" * 5000])
def test_what_is_no_json_is_none(text: str | None) -> None:
    assert written_json(text) is None


def test_json_as_deep_as_objects_are_is_read() -> None:
    assert written_json('{"a": [1, {"b": "c"}]}') == {"a": [1, {"b": "c"}]}
    assert written_json("[" * MAX_PATCH_DEPTH + "]" * MAX_PATCH_DEPTH) is not None
