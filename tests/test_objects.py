"""What every object can be asked."""

from __future__ import annotations

from rowlock.objects import Object, keep_latest


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
