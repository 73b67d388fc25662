"""How many connections a server holds, in all and for one address."""

from __future__ import annotations

import asyncio
import errno
import functools
import resource
import socket

import pytest

from rowlock.http_server import connection_limits
from rowlock.http_server.connection_limits import LOOPBACK, ConnectionCounts, CountedConnection, LimitedConnection


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("127.0.0.1", LOOPBACK),
        ("127.9.9.9", LOOPBACK),
        ("::1", LOOPBACK),
        ("::ffff:127.0.0.1", LOOPBACK),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_an_address_counts_for_one_client(host: str, client: str) -> None:
    assert connection_limits.client_of(host) == client


def test_one_address_does_not_take_the_connections_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "connection_limit", lambda others: 16)
    counts = ConnectionCounts()
    ours = [speaker(counts, "192.0.2.7") for _ in range(5)]
    assert [connection is not None for connection in ours] == [True] * 4 + [False]
    assert speaker(counts, "192.0.2.8") and speaker(counts, "127.0.0.1")
    for connection in ours:
        if connection is not None:
            connection.close()
            connection.close()  # and once more does no harm
    assert speaker(counts, "192.0.2.7"), "they have gone"


def speaker(counts: ConnectionCounts, host: str) -> CountedConnection | None:
    """A connection that has asked for something; it must not be cut."""
    connection = counts.open(host, lambda: pytest.fail("it was cut"))
    if connection is not None:
        connection.speak()
    return connection


def test_who_is_silent_for_longest_makes_room_for_who_comes_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods share loopback with the owner: hundreds of silent connections of theirs kept him out."""
    monkeypatch.setattr(connection_limits, "connection_limit", lambda others: 16)
    counts, cut = ConnectionCounts(), list[int]()
    speaking = [speaker(counts, "127.0.0.1") for _ in range(4)]
    silent = [counts.open("127.0.0.1", functools.partial(cut.append, number)) for number in range(10)]
    assert all(speaking) and all(silent) and not cut
    assert counts.open("127.0.0.1", lambda: None) and cut == [0]
    assert silent[1] is not None
    silent[1].speak()
    assert counts.open("127.0.0.1", lambda: None) and cut == [0, 2]
    assert speaker(counts, "192.0.2.7"), "others' room is theirs"
    for _ in range(50):
        counts.open("127.0.0.1", lambda: None)
    assert cut == [0, 2, 3, 4, 5, 6, 7, 8, 9], "each is cut once, and no one that has spoken"


def test_pods_have_descriptors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert connection_limits.connection_limit(20) == 192
    assert connection_limits.connection_limit(80) == 144
    assert connection_limits.connection_limit(250) == 16, "somebody is answered, however many pods there are"
    monkeypatch.setattr(connection_limits, "count_descriptors", lambda: 80)
    counts, cut = ConnectionCounts(), list[str]()
    room = connection_limits.client_limit(LOOPBACK, 144)
    for _ in range(room):
        assert counts.open("127.0.0.1", lambda: cut.append("cut"))
    assert not cut and counts.open("127.0.0.1", lambda: None) and cut == ["cut"]


def test_loopback_has_room_for_ten_browsers_and_two_hundred_watchers_at_1024_descriptors() -> None:
    assert connection_limits.client_limit(LOOPBACK, 1024 * 3 // 4) > 10 * 6 + 200


def test_a_crowd_accepted_in_one_turn_is_held_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio asks for all their protocols before it tells the first that it is connected."""
    monkeypatch.setattr(connection_limits, "connection_limit", lambda others: 16)
    counts, served = ConnectionCounts(), []

    async def main() -> int:
        loop = asyncio.get_running_loop()

        def make(connection: CountedConnection, _: int) -> asyncio.Protocol:
            served.append(connection)
            connection.speak()  # so that it keeps its place
            return asyncio.Protocol()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
            crowd = [socket.create_connection(address) for _ in range(40)]
            server = await loop.create_server(lambda: LimitedConnection(counts, make), sock=listener)
            for connection in crowd[14:]:
                connection.setblocking(False)
                try:
                    assert await loop.sock_recv(connection, 1) == b"", "closed at once"
                except ConnectionResetError:
                    pass
            for connection in crowd:
                connection.close()
            server.close()
        return len(served)

    assert asyncio.run(asyncio.wait_for(main(), 200)) == 14


def test_where_no_descriptor_is_left_silent_connections_make_room(caplog: pytest.LogCaptureFixture) -> None:
    """However it came about: asyncio would try again each second until the silent ones are cut off for their silence."""
    counts, cut = ConnectionCounts(), list[int]()
    for number in range(40):
        assert counts.open("127.0.0.1", functools.partial(cut.append, number))
    assert counts.open("192.0.2.7", lambda: pytest.fail("it has fewer")) and speaker(counts, "127.0.0.1")
    loop = asyncio.new_event_loop()
    try:
        context = {"message": "no more", "exception": OSError(errno.EMFILE, "Too many open files"), "socket": None}
        counts.handle_loop_error(loop, context)
        assert cut == list(range(32)) and "32 connections" in caplog.text
        counts.handle_loop_error(loop, {"message": "another trouble"})
        assert len(cut) == 32 and "another trouble" in caplog.text
    finally:
        loop.close()


def test_who_sees_to_clients_first_knows_their_sockets() -> None:
    descriptors = {3}  # a listener's
    counts = ConnectionCounts(descriptors)
    connection = counts.open("192.0.2.7", lambda: None, 7)
    assert connection is not None and descriptors == {3, 7}
    connection.close()
    assert descriptors == {3}, "its number may be another's next"
