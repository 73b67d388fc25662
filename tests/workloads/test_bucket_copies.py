"""What a data source of a bucket brings into a pod: its init container's own program, against moto's S3 service in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowlock.workloads.storage.copies import BucketCopy

BUCKETS = {"sets": ["a.txt", "deep/er/ä b.bin", "marker/", "empty"], "nothing": []}
SERVER = """
import json, sys
import boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"
client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
for bucket, keys in json.loads(sys.argv[1]).items():
    client.create_bucket(Bucket=bucket, ACL="public-read")
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, ACL="public-read", Body=b"" if key == "empty" else f"{bucket} {key}".encode())
print(url, flush=True)
sys.stdin.read()
"""
KEY = {"AccessKeyId": "AKIA", "SecretKey": "word"}


def clean_environment(**more: str) -> dict[str, str]:
    """Without the proxies and the keys of whoever runs the tests."""
    kept = {
        name: value for name, value in os.environ.items() if "proxy" not in name.lower() and not name.startswith("AWS")
    }
    return {**kept, "AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true", **more}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a service with these buckets."""
    command = [sys.executable, "-c", SERVER, json.dumps(BUCKETS)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment()
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        address = server.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), "moto's server did not start: its words are above"
        yield address
        server.stdin.close()


def copy(bucket: str, directory: Path, url: str, secret: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Run the init container's program here, with the variables that the kubelet would give it."""
    container = BucketCopy("data", bucket, str(directory), url, secret).init_container("image")
    program, *arguments = container["command"]
    assert program == "python3"
    variables = {
        one["name"]: one["value"] if "value" in one else KEY[one["valueFrom"]["secretKeyRef"]["key"]]
        for one in container["env"]
    }
    environment = clean_environment(**variables, **more)
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("secret", ["", "the-key"], ids=["everybody may read it", "with a key"])
def test_all_objects_of_a_bucket_are_copied(s3: str, tmp_path: Path, secret: str) -> None:
    (tmp_path / "data").mkdir()
    done = copy("sets", tmp_path / "data", s3, secret)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"copied 3 objects of the bucket sets to {tmp_path}/data\n"
    files = {str(one.relative_to(tmp_path / "data")): one.read_text() for one in tmp_path.rglob("*") if one.is_file()}
    assert files == {"a.txt": "sets a.txt", "deep/er/ä b.bin": "sets deep/er/ä b.bin", "empty": ""}


def test_an_empty_bucket_is_no_mistake(s3: str, tmp_path: Path) -> None:
    done = copy("nothing", tmp_path, s3)
    assert (done.returncode, done.stdout) == (0, f"copied 0 objects of the bucket nothing to {tmp_path}\n"), done.stderr


def test_a_bucket_that_is_not_there_says_so(s3: str, tmp_path: Path) -> None:
    done = copy("none", tmp_path, s3)
    assert (
        done.returncode == 1 and "the bucket none cannot be copied: " in done.stderr and "NoSuchBucket" in done.stderr
    )
    assert "Traceback" not in done.stderr


FAKE = """
UNSIGNED = None
class Config:
    def __init__(self, **more): pass
class client:
    def __init__(self, *args, **more): pass
    def get_paginator(self, name): return self
    def paginate(self, Bucket): return [{"Contents": [{"Key": "fine"}]}, {"Contents": [{"Key": %r}]}, {}]
    def download_file(self, bucket, key, target): open(target, "w").write(key)
"""


def fake_client(directory: Path, key: str) -> str:
    """A directory with a client of a service that has such a key; no other one stores it."""
    for module in ("boto3", "botocore", "botocore/config"):
        place = directory / "fake" / module
        place.mkdir(parents=True)
        (place / "__init__.py").write_text(FAKE % key)
    return str(directory / "fake")


@pytest.mark.parametrize("key", ["../outside", "a/../../outside", "link/outside", "/etc/outside"])
def test_a_key_leads_nowhere_else(tmp_path: Path, key: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    done = copy("sets", root, "http://127.0.0.1:9", PYTHONPATH=fake_client(tmp_path, key))
    assert done.returncode == 1 and f"the key {key!r} leads out of {root}" in done.stderr, done.stderr
    assert not (tmp_path / "outside").exists() and (root / "fine").read_text() == "fine"


def test_an_image_without_the_client_is_told_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "boto3.py").write_text("raise ImportError('not here')\n")
    done = copy("sets", tmp_path, "", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and "this image has no boto3. Add it with: pip install boto3" in done.stderr
