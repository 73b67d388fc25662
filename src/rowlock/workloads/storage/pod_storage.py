"""Converts the storage part of a submit to volumes, mounts, claims, and init containers that fill volumes.

The sources are `hostPath`, `nfs`, `pvc`, `configMapVolume`, `secretVolume`, `emptyDirVolume`, `git` and `s3`. A new claim is
created beside the job (`claim_objects`); an ephemeral one is owned by the job and deleted with it. Repositories are cloned
and buckets copied by the workload's own image into a volume of the pod (`copies.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rowlock import objects, quantity, submit_fields
from rowlock.workloads.body_fields import Fields
from rowlock.workloads.storage.copies import BucketCopy, Clone, Copy

_ACCESS_MODES = {"readWriteOnce": "ReadWriteOnce", "readOnlyMany": "ReadOnlyMany", "readWriteMany": "ReadWriteMany"}
_NFS_SERVER = re.compile(r"[A-Za-z0-9_]([-.A-Za-z0-9_]{0,252}[A-Za-z0-9_])?|\[?[0-9A-Fa-f:.]{2,45}\]?")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim to create. `ephemeral`: it is deleted with the job."""

    name: str
    size: str
    storage_class: str
    access_modes: tuple[str, ...]
    volume_mode: str
    ephemeral: bool


@dataclass(frozen=True, slots=True)
class PodStorage:
    """The volumes and mounts of a pod's spec, and what they need."""

    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    claims: tuple[Claim, ...] = ()
    copies: tuple[Copy, ...] = ()
    """Repositories and buckets that init containers copy into volumes."""


def claim_object(claim: Claim, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    """The PersistentVolumeClaim of a claim."""
    spec: dict[str, Any] = {
        "accessModes": list(claim.access_modes),
        "resources": {"requests": {"storage": claim.size}},
        **({"storageClassName": claim.storage_class} if claim.storage_class else {}),
        **({"volumeMode": claim.volume_mode} if claim.volume_mode else {}),
    }
    metadata = {"name": claim.name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def parse_storage(body: Fields, workload: str) -> PodStorage:
    """Parse a `storage` object; mistakes are added to its errors. New claims without a name are named after the workload."""
    body.allow_only(*submit_fields.field_names("storage"), refused=submit_fields.refused_fields("storage"))
    reader = _StorageReader(workload)
    for kind, read in (
        ("hostPath", reader.read_host_path),
        ("nfs", reader.read_nfs),
        ("pvc", reader.read_claim),
        ("configMapVolume", reader.read_config_map),
        ("secretVolume", reader.read_secret),
        ("emptyDirVolume", reader.read_empty_dir),
        ("git", reader.read_repository),
        ("s3", reader.read_bucket),
    ):
        for item in body.items(kind):
            read(item)
    return PodStorage(tuple(reader.volumes), tuple(reader.mounts), tuple(reader.claims), tuple(reader.copies))


class _StorageReader:
    """Collects volumes and their mounts; mount paths must be unique."""

    def __init__(self, workload: str) -> None:
        self._workload = workload
        self._paths, self._names = set[str](), set[str]()
        self.volumes: list[dict[str, Any]] = []
        self.mounts: list[dict[str, Any]] = []
        self.claims: list[Claim] = []
        self.copies: list[Copy] = []

    def _add(self, item: Fields, prefix: str, source: dict[str, Any], path_field: str, **mount: Any) -> str:
        """Add a volume and its mount; returns the volume's name."""
        path = item.text(path_field)
        if not path.startswith("/"):
            item.add_error(path_field, "required", f"must be a directory of the container such as /data, not {path!r}.")
        elif path in self._paths:
            item.add_error(path_field, "exclusive", f"{path} is mounted twice.")
        name = item.text("name") or f"{prefix}-{len(self.volumes)}"
        if not objects.is_dns_label(name) or name in self._names:
            item.add_error("name", "format", f"{name!r} must be a DNS label that no other volume has.")
        self._paths.add(path)
        self._names.add(name)
        self.volumes.append({"name": name, **source})
        self.mounts.append({"name": name, "mountPath": path, **{k: v for k, v in mount.items() if v}})
        return name

    def read_host_path(self, item: Fields) -> None:
        item.allow_only("path", "mountPath", "readOnly", "mountPropagation", "name", "exclude")
        path = item.text("path")
        if not path.startswith("/"):
            item.add_error("path", "required", f"must be a directory of the node such as /data, not {path!r}.")
        if item.choice("mountPropagation", "None", "HostToContainer") == "HostToContainer":
            text = "the kubelet does not propagate mounts: mount before the job starts, and leave it out."
            item.add_error("mountPropagation", "unsupported", text)
        read_only = item.get("readOnly") is None or item.flag("readOnly")
        self._add(item, "host", {"hostPath": {"path": path}}, "mountPath", readOnly=read_only)

    def read_nfs(self, item: Fields) -> None:
        item.allow_only("path", "server", "mountPath", "readOnly", "name", "exclude")
        path, server = item.text("path"), item.text("server")
        if not path.startswith("/"):
            item.add_error(
                "path", "required", f"must be the path that the server exports, such as /data, not {path!r}."
            )
        if not _NFS_SERVER.fullmatch(server):
            item.add_error("server", "required", f"must be the name or the address of the NFS server, not {server!r}.")
        read_only = item.get("readOnly") is None or item.flag("readOnly")
        source = {"server": server, "path": path, **({"readOnly": True} if read_only else {})}
        self._add(item, "nfs", {"nfs": source}, "mountPath", readOnly=read_only)

    def read_claim(self, item: Fields) -> None:
        item.allow_only(
            "path", "existingPvc", "claimName", "readOnly", "ephemeral", "claimInfo", "dataSharing", "name", "exclude"
        )
        name = item.text("claimName")
        if item.flag("dataSharing"):
            item.add_error("dataSharing", "unsupported", "claims belong to one project. Leave it out.")
        if item.flag("existingPvc"):
            if not name:
                item.add_error("claimName", "required", "an existing claim needs its name.")
        else:
            name = name or f"{self._workload}-pvc-{len(self.claims)}"
            self._add_claim(item, name)
        source: dict[str, Any] = {"claimName": name}
        if item.flag("readOnly"):
            source["readOnly"] = True
        self._add(item, "pvc", {"persistentVolumeClaim": source}, "path", readOnly=item.flag("readOnly"))

    def _add_claim(self, item: Fields, name: str) -> None:
        info = item.object("claimInfo")
        info.allow_only("size", "storageClass", "accessModes", "volumeMode")
        size = info.parsable_text("size", quantity.parse)
        if not size:
            info.add_error("size", "required", "a new claim needs a size such as 10Gi.")
        modes = info.object("accessModes")
        modes.allow_only(*_ACCESS_MODES)
        access_modes = tuple(kubernetes for ours, kubernetes in _ACCESS_MODES.items() if modes.flag(ours))
        volume_mode = info.choice("volumeMode", "Filesystem", "Block")
        if volume_mode == "Block":
            info.add_error("volumeMode", "unsupported", "claims are directories here. Leave it out.")
        self.claims.append(
            Claim(
                name,
                size,
                info.text("storageClass"),
                access_modes or ("ReadWriteOnce",),
                volume_mode,
                item.flag("ephemeral"),
            )
        )

    def read_config_map(self, item: Fields) -> None:
        self._read_files(item, "configMap", lambda name: {"configMap": {"name": name}})

    def read_secret(self, item: Fields) -> None:
        self._read_files(item, "secret", lambda name: {"secret": {"secretName": name}})

    def _read_files(self, item: Fields, kind: str, source_of: Callable[[str], dict[str, Any]]) -> None:
        item.allow_only(kind, "mountPath", "subPath", "defaultMode", "name", "exclude")
        name, mode = item.text(kind), item.get("defaultMode")
        if not name:
            item.add_error(kind, "required", "needs the name of the object that has the files.")
        source = source_of(name)
        if mode is not None:
            if not re.fullmatch(r"0?[0-7]{3}", str(mode)):
                item.add_error("defaultMode", "format", f"must be the mode of files such as 0644, not {mode!r}.")
            else:
                next(iter(source.values()))["defaultMode"] = int(str(mode), 8)
        self._add(item, "files", source, "mountPath", subPath=item.text("subPath"))

    def read_empty_dir(self, item: Fields) -> None:
        item.allow_only("path", "medium", "sizeLimit", "name", "exclude")
        medium = item.choice("medium", "Memory")
        limit = item.parsable_text("sizeLimit", quantity.parse)
        source = {name: value for name, value in (("medium", medium), ("sizeLimit", limit)) if value}
        self._add(item, "empty", {"emptyDir": source}, "path")

    def read_repository(self, item: Fields) -> None:
        item.allow_only(
            "repository", "branch", "revision", "path", "secretRef", "username", "password", "name", "exclude"
        )
        repository, secret = item.text("repository"), item.object("secretRef")
        secret.allow_only("name", "authenticationMethod", "secretKeyOfUser", "secretKeyOfPassword")
        if not repository:
            item.add_error("repository", "required", "git sync must contain Repository")
        self._refuse_plain_secrets(item, "username", "password")
        if secret.choice("authenticationMethod", "password", "ssh-key") == "ssh-key":
            secret.add_error(
                "authenticationMethod", "unsupported", "repositories are cloned with a username and a password."
            )
        path = item.text("path")
        volume = self._add(item, "git", {"emptyDir": {}}, "path")
        keys = secret.text("secretKeyOfUser") or "username", secret.text("secretKeyOfPassword") or "password"
        clone = Clone(volume, repository, path, item.text("branch"), item.text("revision"), secret.text("name"), *keys)
        self.copies.append(clone)

    def read_bucket(self, item: Fields) -> None:
        item.allow_only(
            "bucket", "path", "url", "accessKeySecret", "secretKeyOfAccessKeyId", "secretKeyOfSecretKey",
            "accessKeyId", "secretAccessKey", "name", "exclude",
        )  # fmt: skip
        bucket, url = item.text("bucket"), item.text("url")
        if not bucket:
            item.add_error("bucket", "required", "needs the name of the bucket.")
        if url and not url.startswith(("http://", "https://")):
            item.add_error("url", "format", f"must begin with http:// or https://, but is {url!r}.")
        self._refuse_plain_secrets(item, "accessKeyId", "secretAccessKey")
        path = item.text("path")
        volume = self._add(item, "s3", {"emptyDir": {}}, "path")
        keys = item.text("secretKeyOfAccessKeyId") or "AccessKeyId", item.text("secretKeyOfSecretKey") or "SecretKey"
        self.copies.append(BucketCopy(volume, bucket, path, url, item.text("accessKeySecret"), *keys))

    @staticmethod
    def _refuse_plain_secrets(item: Fields, *fields: str) -> None:
        if any(item.get(field) is not None for field in fields):
            both = " and ".join(fields)
            text = f"would be kept in the job for everybody to read: put {both} into a Secret, and name it."
            item.add_error(fields[-1], "unsupported", text)
