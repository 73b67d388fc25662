"""Requests and answers byte by byte: what the shortcuts past ASGI must do as ASGI's own way does it."""

from __future__ import annotations

import json

import pytest
from tests.apiserver.conftest import Running
from tests.apiserver.server.test_limits import CONFIGS, all_of, connected, head


def asked(server: Running, *pieces: bytes) -> bytes:
    """Everything that is said until the server hangs up."""
    with connected(server) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return all_of(connection)


def made(name: str, *lines: str, line: str = f"POST {CONFIGS} HTTP/1.1") -> bytes:
    body = json.dumps({"metadata": {"name": name}}).encode()
    return head(line, f"Content-Length: {len(body)}", *lines) + b"\r\n\r\n" + body


LAST = head("GET /version HTTP/1.1", "Connection: close") + b"\r\n\r\n"


def test_who_wants_no_more_is_told_so_and_hung_up_on(server: Running) -> None:
    said = asked(server, made("no-more", "Connection: close"))
    about, _, body = said.partition(b"\r\n\r\n")
    assert about.startswith(b"HTTP/1.1 201 Created\r\n")
    lines = dict(line.split(": ", 1) for line in about.decode().split("\r\n")[1:])
    assert lines.pop("date")
    lines.pop("server", None)  # the test server says who it is
    assert lines == {
        "content-type": "application/json", "content-length": str(len(body)), "cache-control": "no-cache, private",
        "connection": "close",
    }  # fmt: skip
    assert json.loads(body)["metadata"]["name"] == "no-more"


def test_the_oldest_http_is_spoken_too(server: Running) -> None:
    said = asked(server, made("oldest", line=f"POST {CONFIGS} HTTP/1.0"))
    assert said.startswith(b"HTTP/1.1 201 ") and b"connection: close" in said


def test_requests_that_come_at_once_are_answered_in_their_order(server: Running) -> None:
    said = asked(server, made("first") + made("second") + made("first") + LAST)
    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"201", b"201", b"409", b"200"]
    assert said.index(b'"name":"first"') < said.index(b'"name":"second"')


@pytest.mark.parametrize("at", [1, 40, -1])
def test_a_request_that_comes_in_pieces(server: Running, at: int) -> None:
    request = made(f"piece{at % 100}")
    assert asked(server, request[:at], request[at:], LAST).startswith(b"HTTP/1.1 201 ")


def test_an_answer_without_a_body_has_none(server: Running) -> None:
    said = asked(server, head(f"HEAD {CONFIGS}/kube-root-ca.crt HTTP/1.1", "Connection: close") + b"\r\n\r\n")
    assert said.count(b"\r\n\r\n") == 1 and said.endswith(b"\r\n\r\n")


def test_who_waits_for_leave_to_send_its_body_gets_it(server: Running) -> None:
    request = made("leave", "Expect: 100-continue", "Connection: close")
    about, _, body = request.partition(b"\r\n\r\n")
    with connected(server) as connection:
        connection.sendall(about + b"\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert all_of(connection).startswith(b"HTTP/1.1 201 ")


def test_warnings_are_headers(server: Running) -> None:
    body = b'{"metadata":{"name":"warned"},"rank":"\xc3\xa9\\r\\nx: y"}'
    lines = head(f"POST {CONFIGS} HTTP/1.1", f"Content-Length: {len(body)}", "Connection: close")
    said = asked(server, lines + b"\r\n\r\n" + body)
    assert said.count(b'warning: 299 - "unknown field \\"rank\\""\r\n') == 1
