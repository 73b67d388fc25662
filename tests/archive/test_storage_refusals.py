"""What an S3 storage refuses is said as it said it, with what to do; not as what the packages between made of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.archive.s3_server import BUCKET

from rowlock.archive.bucket import (
    MissingObject,
    RemoteBucket,
    StorageFailed,
    StorageRefused,
    UnusableBucket,
    open_bucket,
)
from rowlock.archive.storage_refusals import ADVICE, Refusal, RefusalNotes, refusal_of


@contextmanager
def refusing_server(status: int, code: str) -> Iterator[str]:
    """A storage on loopback that answers everything with this error."""
    xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>It says why.</Message></Error>".encode()

    class Refusing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = b"" if self.command == "HEAD" else xml
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (301, "PermanentRedirect", "set AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "set AWS_REGION"),
        (403, "AccessDenied", "must read, write, list and delete"),
        (403, "InvalidAccessKeyId", "correct AWS_ACCESS_KEY_ID"),
        (403, "RequestTimeTooSkewed", "clock of this machine"),
        (403, "OfAnotherStorage", "must read, write, list and delete"),
        (404, "NoSuchBucket", "make the bucket, or correct its name"),
    ],
)
def test_a_server_that_starts_says_what_the_storage_said(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, advice: str
) -> None:
    """A redirect without a region was a RecursionError."""
    monkeypatch.setattr("rowlock.archive.bucket.ANSWER_S", 200.0)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with refusing_server(status, code) as endpoint, pytest.raises(UnusableBucket) as refusal:
        open_bucket(f"s3://{BUCKET}/x", {"AWS_ENDPOINT_URL": endpoint})
    sentence = str(refusal.value)
    assert sentence.startswith(f"the archive s3://{BUCKET}/x cannot be used: it answers HTTP {status}")
    assert advice in sentence and "\n" not in sentence and "Error" not in sentence
    if status != 301:  # of that one botocore has read no body
        assert f"{code} (It says why); " in sentence


def answer(status: int, code: str) -> tuple[None, dict[str, Any]]:
    """What botocore tells a listener of an answer."""
    return None, {"Error": {"Code": code, "Message": "Why."}, "ResponseMetadata": {"HTTPStatusCode": status}}


class Played:
    """A storage of fsspec that tells its listener of an answer, if any, and raises."""

    def __init__(self, notes: RefusalNotes, told: tuple[None, dict[str, Any]] | None, error: Exception) -> None:
        self._notes, self._told, self._error = notes, told, error

    def cat_file(self, *_: Any, **__: Any) -> bytes:
        if self._told:
            self._notes.note(response=self._told, operation=None)
        raise self._error


@pytest.mark.parametrize(
    ("told", "error", "kind", "sentence"),
    [
        (answer(503, "SlowDown"), TimeoutError(), StorageRefused, r"HTTP 503 SlowDown \(Why\); it takes no more requests now: wait"),
        (answer(301, "301"), RecursionError(), StorageRefused, r"HTTP 301 \(Why\); its region is another"),
        (answer(500, "InternalError"), OSError(121, "why"), StorageRefused, "HTTP 500 InternalError .*; the fault is the storage's"),
        (None, TimeoutError(), StorageFailed, r"it did not answer within \d+ s"),
        (answer(404, "404"), TimeoutError(), StorageFailed, r"it did not answer within \d+ s"),
        (answer(404, "404"), FileNotFoundError("x"), MissingObject, "x"),
        (answer(418, "Teapot"), OSError(5, "teapot"), StorageFailed, "teapot"),
    ],
)  # fmt: skip
def test_what_the_packages_raise_is_told_by_the_last_answer(
    told: tuple[None, dict[str, Any]] | None, error: Exception, kind: type[Exception], sentence: str
) -> None:
    notes = RefusalNotes()
    with pytest.raises(kind, match=sentence) as raised:
        RemoteBucket("s3://b", Played(notes, told, error), "b", notes).read("x")
    assert type(raised.value) is kind


def test_an_answer_of_an_earlier_question_counts_no_more() -> None:
    notes = RefusalNotes()
    notes.note(response=answer(503, "SlowDown"))
    with pytest.raises(StorageFailed, match="did not answer"):
        RemoteBucket("s3://b", Played(notes, None, TimeoutError()), "b", notes).read("x")


def test_an_answer_of_success_is_no_refusal() -> None:
    notes = RefusalNotes()
    notes.note(response=(None, {"ResponseMetadata": {"HTTPStatusCode": 200}}))
    notes.note(response=None, caught_exception=OSError())
    assert notes.since(0.0) is None and refusal_of(b"") is None


@pytest.mark.parametrize("code", sorted(ADVICE))
def test_every_sentence_is_one(code: str) -> None:
    sentence = Refusal(403, code, "Why.\n  More.").sentence()
    assert sentence.startswith(f"it answers HTTP 403 {code} (Why. More); ") and not sentence.endswith(".")
