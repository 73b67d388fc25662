"""Init containers that fill a pod's volumes before its containers start: clones of repositories, copies of buckets.

They use the workload's own image, which must contain git, or Python with boto3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CLONE_SCRIPT = (
    'set -e; git clone ${GIT_BRANCH:+--branch "$GIT_BRANCH"} "$GIT_REPOSITORY" "$GIT_DIRECTORY"; '
    'test -z "$GIT_REVISION" || git -C "$GIT_DIRECTORY" checkout "$GIT_REVISION"'
)
_CREDENTIAL_SCRIPT = (
    "git config --global credential.helper "
    '\'!f() { echo "username=$GIT_USERNAME"; echo "password=$GIT_PASSWORD"; }; f\'; '
)
_BUCKET_SCRIPT = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
bucket, root, url = os.environ["S3_BUCKET"], os.path.realpath(os.environ["S3_DIRECTORY"]), os.environ.get("S3_URL")
try:
    import boto3, botocore
    from botocore.config import Config
except ImportError:
    sys.exit(f"the bucket {bucket} cannot be copied: this image has no boto3. Add it with: pip install boto3")
how = {"retries": {"mode": "standard", "max_attempts": 5}, "max_pool_connections": 16}
if "AWS_ACCESS_KEY_ID" not in os.environ:
    how["signature_version"] = botocore.UNSIGNED
if url:
    how["s3"] = {"addressing_style": "path"}
client = boto3.client("s3", endpoint_url=url, config=Config(**how))
def copy(key):
    target = os.path.realpath(os.path.join(root, key))
    if not target.startswith(root + os.sep):
        raise ValueError(f"the key {key!r} leads out of {root}")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    client.download_file(bucket, key, target)
try:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [one["Key"] for page in pages for one in page.get("Contents", ()) if not one["Key"].endswith("/")]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(copy, keys))
except Exception as error:
    sys.exit(f"the bucket {bucket} cannot be copied: {error}")
print(f"copied {len(keys)} objects of the bucket {bucket} to {root}", flush=True)
"""


@dataclass(frozen=True, slots=True)
class Clone:
    """A repository that is cloned into the volume. `secret` names the Secret with username and password ("" for none)."""

    volume: str
    repository: str
    path: str
    branch: str
    revision: str
    secret: str
    user_key: str = "username"
    password_key: str = "password"

    def init_container(self, image: str) -> dict[str, Any]:
        values = {
            "GIT_REPOSITORY": self.repository, "GIT_DIRECTORY": self.path, "GIT_BRANCH": self.branch,
            "GIT_REVISION": self.revision, "GIT_TERMINAL_PROMPT": "0",
        }  # fmt: skip
        keys = {"GIT_USERNAME": self.user_key, "GIT_PASSWORD": self.password_key}
        script = (f"HOME=$(mktemp -d); export HOME; {_CREDENTIAL_SCRIPT}" if self.secret else "") + _CLONE_SCRIPT
        return {
            "name": f"git-sync-{self.volume}",
            "image": image,
            "command": ["sh", "-c", script],
            "env": _variables(values, self.secret, keys),
            "volumeMounts": [{"name": self.volume, "mountPath": self.path}],
        }


@dataclass(frozen=True, slots=True)
class BucketCopy:
    """An S3 bucket whose objects are copied into the volume. Later writes to the volume are not copied back. `secret` names the
    Secret with the access key; "" for a public bucket."""

    volume: str
    bucket: str
    path: str
    url: str
    """"" for Amazon's."""
    secret: str
    id_key: str = "AccessKeyId"
    secret_key: str = "SecretKey"

    def init_container(self, image: str) -> dict[str, Any]:
        values = {"S3_BUCKET": self.bucket, "S3_DIRECTORY": self.path, "S3_URL": self.url}
        keys = {"AWS_ACCESS_KEY_ID": self.id_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return {
            "name": f"s3-copy-{self.volume}",
            "image": image,
            "command": ["python3", "-c", _BUCKET_SCRIPT],
            "env": _variables(values, self.secret, keys),
            "volumeMounts": [{"name": self.volume, "mountPath": self.path}],
        }


def _variables(values: Mapping[str, str], secret: str, keys: Mapping[str, str]) -> list[dict[str, Any]]:
    """Variables for the non-empty `values`, and, if there is a `secret`, for its keys."""
    plain: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items() if value]
    if not secret:
        return plain
    references = {name: {"secretKeyRef": {"name": secret, "key": key}} for name, key in keys.items()}
    return plain + [{"name": name, "valueFrom": source} for name, source in references.items()]


Copy = Clone | BucketCopy
