"""A streamed answer: cut into lines, and never taken for whole where the server broke it off."""

from __future__ import annotations

import http.client
import socket
import threading

import pytest

from rowlock.cli.text_streams import LONGEST_LINE, StreamBroken, read_pieces, split_lines

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def read_from(sent: bytes) -> list[bytes]:
    """The lines that a client reads of a server that sends this, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(sent)

        server = threading.Thread(target=serve)
        server.start()
        client = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=200)
        lines = []
        try:
            client.request("GET", "/")
            for line in split_lines(read_pieces(client.getresponse())):
                lines.append(line)
        except StreamBroken:
            lines.append(b"BROKEN")
        finally:
            client.close()
            server.join()
        return lines


@pytest.mark.parametrize(
    ("sent", "lines"),
    [
        (CHUNKED + b"6\r\none\ntw\r\n2\r\no\n\r\n0\r\n\r\n", [b"one\n", b"two\n"]),
        (CHUNKED + b"3\r\none\r\n0\r\n\r\n", [b"one"]),
        (CHUNKED + b"4\r\none\n\r\n", [b"one\n", b"BROKEN"]),  # closed between two chunks
        (CHUNKED + b"9\r\none\ntw", [b"one\n", b"BROKEN"]),  # closed within one
        (CHUNKED, [b"BROKEN"]),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\none\n", [b"one\n"]),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\none\n", [b"one\n", b"BROKEN"]),
    ],
)
def test_an_answer_that_breaks_off_is_told_from_one_that_ends(sent: bytes, lines: list[bytes]) -> None:
    assert read_from(sent) == lines


def test_a_line_without_end_is_not_held() -> None:
    pieces = list(split_lines(iter([b"x" * (LONGEST_LINE // 2)] * 5 + [b"\nlast"])))
    assert b"".join(pieces) == b"x" * (LONGEST_LINE // 2 * 5) + b"\nlast" and pieces[-1] == b"last"
    assert max(map(len, pieces)) <= 2 * LONGEST_LINE


def test_a_log_that_the_server_cannot_read_to_its_end_is_told_from_a_broken_connection() -> None:
    assert "the log is not complete" in str(StreamBroken(b"one\nrowlock: the log ends here: its node is gone\n"))
    assert "the connection to the server broke" in str(StreamBroken(b"rowlock: the log ends here: no\nmore\n"))
