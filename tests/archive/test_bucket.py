"""The storage of a shared archive: a directory and a real S3 server behave alike, and what cannot be used is said in one sentence."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from tests.archive.s3_server import BUCKET, s3_server

from rowlock.archive.bucket import Bucket, BucketChunks, MissingObject, UnusableBucket, open_bucket


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield variables


@pytest.fixture(params=["directory", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    if request.param == "directory":
        return open_bucket(f"file://{tmp_path}")
    request.getfixturevalue("s3")
    return open_bucket(f"s3://{BUCKET}/{tmp_path.name}/")


def test_objects_are_written_listed_read_and_removed(bucket: Bucket, tmp_path: Path) -> None:
    assert bucket.names("writes") == {} and bucket.names("probes") == {}, "what was tried at the start is gone"
    bucket.write("writes/a", b"one")
    bucket.write("writes/a", b"three")
    bucket.write("logs/b", b"")
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    bucket.upload("writes/c", tmp_path / "file")
    assert bucket.names("writes") == {"writes/a": 5, "writes/c": 100_000} and bucket.names("logs") == {"logs/b": 0}
    assert bucket.read("writes/a") == b"three" and len(bucket.read("writes/c")) == 100_000
    bucket.remove(["writes/a", "writes/never", "logs/b"])
    assert bucket.names("writes") == {"writes/c": 100_000} and bucket.names("logs") == {}
    with pytest.raises(MissingObject):
        bucket.read("writes/a")
    with pytest.raises(FileNotFoundError) as own:
        bucket.upload("writes/a", tmp_path / "never")
    assert not isinstance(own.value, MissingObject), "this machine has no such file"


def test_a_long_object_is_read_in_pieces(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.archive.bucket.CHUNK", 1000)
    content = os.urandom(3500)
    bucket.write("logs/long", content)
    bucket.write("logs/even", content[:2000])
    assert [len(chunk) for chunk in BucketChunks(bucket, "logs/long")] == [1000, 1000, 1000, 500]
    assert b"".join(BucketChunks(bucket, "logs/long")) == content
    assert b"".join(BucketChunks(bucket, "logs/even")) == content[:2000]
    assert list(BucketChunks(bucket, "logs/never")) == []


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("lab", "takes s3://BUCKET/PREFIX or file:///DIRECTORY"),
        ("s3:///prefix", "takes s3://BUCKET/PREFIX or file:///DIRECTORY"),
        ("file://host/directory", "names a host: a directory is named file:///DIRECTORY"),
        ("file:///no/such/directory", "is no directory here: mount it in every server"),
        ("s3://bucket/*", "none of the characters"),
        ("gopher://lab/archive", "s3://BUCKET/PREFIX and file:///DIRECTORY can"),
    ],
)
def test_what_is_no_storage_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(UnusableBucket) as refusal:
        open_bucket(url)
    assert url in str(refusal.value) and sentence in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_bucket_that_is_not_there_is_said(s3: dict[str, str]) -> None:
    with pytest.raises(
        UnusableBucket,
        match=r"the archive s3://no-such-bucket/x cannot be used: it answers HTTP 404 NoSuchBucket .*; make the bucket",
    ):
        open_bucket("s3://no-such-bucket/x")


def test_a_server_that_does_not_answer_is_said(s3: dict[str, str]) -> None:
    nowhere = {**os.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    with pytest.raises(UnusableBucket, match=r"cannot be used: .*127.0.0.1:9"):
        open_bucket(f"s3://{BUCKET}/x", nowhere)


def test_a_server_that_takes_connections_and_says_nothing_is_given_up(
    s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the packages below would ask it again."""
    monkeypatch.setattr("rowlock.archive.bucket.ANSWER_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        with pytest.raises(UnusableBucket, match=r"cannot be used: it did not answer within 0 s"):
            open_bucket(f"s3://{BUCKET}/x", where)


@pytest.mark.parametrize("module", [fsspec.__name__, "s3fs"])
def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnusableBucket, match=r"needs rowlock\[s3\]: `pip install 'rowlock\[s3\]'`"):
        open_bucket("s3://bucket/prefix")


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "probes").write_text("a file in the way")
    with pytest.raises(UnusableBucket, match=r"cannot be used: .*these credentials must read, write, list and delete"):
        open_bucket(f"file://{tmp_path}")
