"""Bodies are read in two ways, a quick and a thorough one: nobody can tell which, but by the clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from typing import Any

import pytest

from rowlock.apiserver.http import request_body
from rowlock.apiserver.http.request_body import (
    convert_large_body,
    decode_body,
    decode_strict_json,
    json_of,
    patch_of,
    yaml_of,
)
from rowlock.apiserver.http.requests import Call
from rowlock.authentication.users import ADMIN
from rowlock.authorization.rbac import RbacAuthorizer
from rowlock.controllers.view.state import State
from rowlock.errors import BadRequest

TWICE = [
    ('{"a":1,"a":1}', ["a"]),
    ('{"a": 1, "b": {"c": [], "c": []}}', ["b.c"]),
    ('[{"a":"","a":""}]', ["[0].a"]),
    ('{"a b":1,"ab":2}', []),
    ('{"a":"x  y","b":" "}', []),
    ('{"a":1e2,"a":100.0}', ["a"]),
    ('{"\\u0061":1,"a":1}', ["a"]),
    ('{"a":1,\n "a":1\n}\n', ["a"]),
]


@pytest.mark.parametrize(("text", "twice"), TWICE)
def test_what_is_said_twice_is_found(text: str, twice: list[str]) -> None:
    value, found = request_body.decode_strict_json(text.encode())
    assert (value, found) == (json.loads(text), twice)


ODD = [
    b'{"a":"\x81"}',
    b'{"a":"\\ud800"}',
    b'{"a":1e999}',
    b'{"a":' + b"9" * 5_000 + b"}",
    b'"\xff',
    b"",
    b"{",
    b"[" * 5_000,
]


@pytest.mark.parametrize("body", ODD)
def test_what_is_no_plain_json_is_read_the_thorough_way(body: bytes) -> None:
    """Whatever that says: found by the fuzzer."""
    assert request_body._decode_unambiguous(body) is None
    with contextlib.suppress(BadRequest):
        request_body.decode_strict_json(body)


@pytest.mark.parametrize("spaces", [(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n")])
def test_both_ways_read_the_same(spaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(7)
    texts = [_text(random_, spaces, 4) for _ in range(2_000)]
    quick = [request_body.decode_strict_json(text.encode()) for text in texts]
    with monkeypatch.context() as patch:
        patch.setattr(request_body, "_decode_unambiguous", lambda body: None)
        assert [request_body.decode_strict_json(text.encode()) for text in texts] == quick
    assert sum(request_body._decode_unambiguous(text.encode()) is not None for text in texts) > 200, (
        "the quick way is never taken"
    )


def _text(random_: random.Random, spaces: tuple[str, str], depth: int) -> str:
    """JSON with keys that come twice, and texts that look like JSON."""
    leaves: list[Any] = ["", "a", " {", '"', ":,", "é", "\t", "\\u0061", 0, -1, 1.5, 2**70, True, None]
    kind = random_.randrange(3) if depth else 0
    if kind == 0:
        return json.dumps(random_.choice(leaves), ensure_ascii=random_.random() < 0.5)
    parts = [_text(random_, spaces, depth - 1) for _ in range(random_.randrange(4))]
    if kind == 1:
        return f"[{spaces[0].join(parts)}]"
    keys = [json.dumps(random_.choice(["a", "b", "a b", "c"])) for _ in parts]
    return "{" + spaces[0].join(f"{key}{spaces[1]}{part}" for key, part in zip(keys, parts, strict=True)) + "}"


@pytest.mark.parametrize(
    "body",
    [
        b"a: 1" + b":59" * 200_000,
        b"[" * 300_000,
        b"a: &a [1]\nb: *a\n",
        b"a: " + b"9" * 600_000,
        b"- " * 100_000,
        b"".join(b"key-%d: value\n" % n for n in range(40_000)),
        b"a: !!int 1" + b":59" * 200_000,
        b"a: !!float 1" + b":59" * 200_000 + b".5",
    ],
    ids=["base 60", "deep", "alias", "digits", "deep lists", "keys", "base 60 by tag", "the same with a fraction"],
)
def test_yaml_that_was_made_to_be_slow_is_not(body: bytes) -> None:
    begun = time.process_time()
    with contextlib.suppress(BadRequest):
        yaml_of(body)
    assert time.process_time() - begun < 10, "a second or two on a busy machine; it was minutes"


def test_yaml_knows_numbers_as_go_does() -> None:
    text = b"a: 1:30\nb: 12\nc: 1.5\nd: 0x10\ne: 017\nf: yes\ng: ~\nh: 2020-01-01\ni: 1_000\nj: +1.5e+3\nk: 1:30.5\n"
    assert yaml_of(text) == {
        "a": "1:30", "b": 12, "c": 1.5, "d": 16, "e": 15, "f": True, "g": None, "h": "2020-01-01", "i": 1000, "j": 1500.0,
        "k": "1:30.5",
    }  # fmt: skip


def test_large_yaml_is_read_beside_the_event_loop() -> None:
    """Others are answered meanwhile: the loop goes round while 200 KiB of YAML are read."""
    body = b"".join(b"key-%d: value\n" % n for n in range(15_000))
    call = Call("POST", "/", {}, {b"content-type": b"application/yaml"}, ADMIN, RbacAuthorizer(State()), body)
    assert asyncio.run(_count_turns(call)) > 2, "it goes round once or twice where the body is read on it"
    assert len(decode_body(call)) == 15_000


async def _count_turns(call: Call) -> int:
    """Of the event loop, while the body is read."""
    reading, turns = asyncio.create_task(convert_large_body(call)), 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    await reading
    return turns


def test_large_json_is_read_beside_the_event_loop() -> None:
    """A field that comes twice takes the long way; it is known all the same, and so is what the body says."""
    body = b'{"kind":"ConfigMap","kind":"ConfigMap","data":{%b}}' % b",".join(
        b'"k%d":"value"' % n for n in range(150_000)
    )
    call = Call("POST", "/", {}, {b"content-type": b"application/json"}, ADMIN, RbacAuthorizer(State()), body)
    assert asyncio.run(_count_turns(call)) > 2, "it goes round once or twice where the body is read on it"
    assert decode_body(call) == json_of(body)
    assert decode_strict_json(call.body)[1] == ["kind"]


def test_large_json_that_is_none_is_refused_in_the_words_of_who_reads_it() -> None:
    body = b'{"data":"' + b"x" * 300_000 + b'"'
    call = Call(
        "PATCH", "/", {}, {b"content-type": b"application/merge-patch+json"}, ADMIN, RbacAuthorizer(State()), body
    )
    asyncio.run(convert_large_body(call))
    for read in (json_of, patch_of):
        with pytest.raises(BadRequest) as late:
            read(call.body)
        with pytest.raises(BadRequest) as direct:
            read(body)
        assert late.value.message == direct.value.message
