"""A pod's volumes as values: the source and the contents of each. Pure; `directories.py` makes them.

`resolve_volumes` reads the pod and the ConfigMaps, Secrets and claims of its namespace as they are now; a later call returns
the contents as of then. What cannot be mounted is a `ContainerConfigError` in the kubelet's words: the pod waits, and an event
`FailedMount` says why.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.kubelet.pod.facts import ContainerConfigError, ObjectLookup
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.kubelet.pod.volume import Files, Volume
from rowlock.kubelet.volumes.account_tokens import DEFAULT_SECONDS, TOKEN_VOLUME_PREFIX, PodTokens
from rowlock.kubelet.volumes.nfs_exports import export_name
from rowlock.objects import Object, dig, name, namespace, uid
from rowlock.quantity import integer_value

DEFAULT_MODE = 0o644
SUPPORTED_KINDS = (
    "emptyDir", "hostPath", "nfs", "configMap", "secret", "downwardAPI", "projected", "persistentVolumeClaim",
)  # fmt: skip

MOST_VOLUMES, MOST_MOUNTS = 1024, 1024
"""Most volumes of a pod, and mounts of one container: each costs system calls at every start."""
MOST_FILES, MOST_FILE_BYTES, MOST_TOKENS = 1 << 14, 32 << 20, 128
"""Limits for all volumes of a pod that show objects, fields and tokens: they are rewritten whenever one of these changes."""

FieldLookup = Callable[[str], str]
"""A path such as `metadata.name` → its text."""
ResourceLookup = Callable[[Mapping[str, Any]], str]
"""A resourceFieldRef → its text."""


@dataclass(slots=True)
class FileSpace:
    """What is left of these limits. One large text may be shown by thousands of files."""

    files: int = MOST_FILES
    size: int = MOST_FILE_BYTES
    tokens: int = MOST_TOKENS
    fields: dict[str, bytes] = field(default_factory=dict)
    """Fields of the pod read so far: files that show the same field share its bytes."""

    def take(self, content: bytes) -> bytes:
        """Counts a file's content and returns it. Raises ContainerConfigError beyond the limits."""
        self.files -= 1
        self.size -= len(content)
        if self.files < 0 or self.size < 0:
            raise ContainerConfigError(
                f"the files that the pod's volumes show of ConfigMaps, Secrets and fields come to more than {MOST_FILES} files or"
                f" {MOST_FILE_BYTES >> 20} MiB: show fewer, or put them into an image or a claim"
            )
        return content

    def take_token(self) -> None:
        self.tokens -= 1
        if self.tokens < 0:
            raise ContainerConfigError(f"a pod's volumes show {MOST_TOKENS} tokens of service accounts at most")


@dataclass(frozen=True, slots=True)
class VolumeContext:
    """What a volume may show: objects of the pod's namespace, fields and resources of the pod."""

    pod: PodSpec
    lookup: ObjectLookup
    field_text: FieldLookup
    resource: ResourceLookup
    tokens: PodTokens
    has_token: bool = True
    """Whether the pod has the token volume that admission adds."""
    rewrite_hostfile: Callable[[str], str] | None = None
    """Rewrites an MPI hostfile for the pod's network; None = it stays as it is."""
    space: FileSpace = field(default_factory=FileSpace)


def resolve_volumes(context: VolumeContext) -> tuple[Volume, ...]:
    """Every volume of the pod. Raises ContainerConfigError with a sentence for the first that cannot be mounted."""
    if len(context.pod.volumes) > MOST_VOLUMES:
        raise ContainerConfigError(
            f"the pod has {len(context.pod.volumes)} volumes, and a node makes {MOST_VOLUMES} at most", "FailedMount"
        )
    return tuple(
        _resolve_volume(context, v) for v in context.pod.volumes if context.has_token or not is_added(v["name"])
    )


def may_need_tokens(pod: PodSpec, *, has_token: bool) -> bool:
    """Whether a volume of the pod may show a token of its account. `has_token`: whether it has the one that admission adds."""
    is_projected = any("projected" in volume for volume in pod.volumes)
    return is_projected and (has_token or any(not is_added(volume["name"]) for volume in pod.volumes))


def is_added(volume: str) -> bool:
    """Whether it is the token volume that admission adds."""
    return volume.startswith(TOKEN_VOLUME_PREFIX)


def _resolve_volume(context: VolumeContext, volume: Mapping[str, Any]) -> Volume:
    volume_name = volume["name"]
    kind = next((k for k in volume if k != "name"), "emptyDir")
    source = volume.get(kind) or {}
    try:
        if kind == "emptyDir":
            limit = integer_value(source["sizeLimit"]) if source.get("sizeLimit") is not None else 0
            kind = _empty_dir_kind(source.get("medium") or "")
            if kind == "memory":  # upstream: `calculateEmptyDirMemorySize` of the kubelet
                limit = min((size for size in (limit, context.pod.memory_limit) if size > 0), default=0)
            return Volume(volume_name, kind, limit=limit if limit > 0 else None)
        if kind == "hostPath":
            return Volume(volume_name, "host", path=source["path"], check=source.get("type") or "")
        if kind == "nfs":
            export = export_name(source["server"], source["path"])
            return Volume(volume_name, "nfs", path=export, read_only=bool(source.get("readOnly")))
        if kind == "persistentVolumeClaim":
            return _resolve_claim(context, volume_name, source)
        if kind in SUPPORTED_KINDS:
            return Volume(volume_name, "files", files=_rewrite_hostfile(context, _FILE_SOURCES[kind](context, source)))
        raise ContainerConfigError(f"rowlock does not mount {kind}; it mounts {', '.join(SUPPORTED_KINDS)}")
    except ContainerConfigError as missing:
        text = f'MountVolume.SetUp failed for volume "{volume_name}" : {missing.problem.message}'
        raise ContainerConfigError(text, "FailedMount") from None


def _empty_dir_kind(medium: str) -> str:
    if medium not in ("", "Memory"):
        raise ContainerConfigError(f'rowlock has no medium "{medium}"; it knows "" (disk) and Memory')
    return "memory" if medium else "empty"


def _resolve_claim(context: VolumeContext, volume_name: str, source: Mapping[str, Any]) -> Volume:
    claim_name = source["claimName"]
    claim = context.lookup(kinds.PERSISTENT_VOLUME_CLAIM, context.pod.namespace, claim_name)
    if claim is None:
        raise ContainerConfigError(f'persistentvolumeclaim "{claim_name}" not found')
    if dig(claim, "spec.volumeMode") == "Block":
        raise ContainerConfigError(
            f'persistentvolumeclaim "{claim_name}" asks for a block device; rowlock provides directories'
        )
    return Volume(volume_name, "claim", path=claim_directory(claim), read_only=bool(source.get("readOnly")))


def claim_directory(claim: Object) -> str:
    """The name of a claim's directory. It has the uid: a claim that was deleted and created again is another one."""
    return f"{namespace(claim)}_{name(claim)}_{uid(claim)}"


# ---------------------------------------------------------------- files


def _config_map_files(context: VolumeContext, source: Mapping[str, Any]) -> Files:
    return _files_of_keys(context, source, (kinds.CONFIG_MAP, source.get("name", "")), _default_mode(source))


def _secret_files(context: VolumeContext, source: Mapping[str, Any]) -> Files:
    return _files_of_keys(
        context, source, (kinds.SECRET, source.get("secretName") or source.get("name", "")), _default_mode(source)
    )


def _default_mode(source: Mapping[str, Any]) -> int:
    mode = source.get("defaultMode")
    return DEFAULT_MODE if mode is None else int(mode)


_ERROR_WORDS = {"ConfigMap": ("configmap", "configmap references non-existent config key"),
          "Secret": ("secret", "references non-existent secret key")}  # fmt: skip


def _files_of_keys(context: VolumeContext, source: Mapping[str, Any], reference: tuple[Kind, str], mode: int) -> Files:
    kind, object_name = reference
    source_object = context.lookup(kind, context.pod.namespace, object_name)
    kind_word, missing_key_text = _ERROR_WORDS[kind.name]
    if source_object is None and not source.get("optional"):
        raise ContainerConfigError(f'{kind_word} "{object_name}" not found')
    data = _DataOf(kind, source_object or {})
    if source.get("items") is None:
        return {key: (context.space.take(data.content(key)), mode) for key in data.keys()}
    files = {}
    for item in source["items"]:
        if item["key"] in data:
            content = context.space.take(data.content(item["key"]))
            files[_check_relative(item["path"])] = (content, _item_mode(item, mode))
        elif not source.get("optional"):
            raise ContainerConfigError(f"{missing_key_text}: {item['key']}")
    return files


class _DataOf:
    """The data of a ConfigMap or a Secret; a key is decoded only when it is read."""

    def __init__(self, kind: Kind, source_object: Object) -> None:
        self._encoded = source_object.get("data" if kind is kinds.SECRET else "binaryData") or {}
        self._plain = {} if kind is kinds.SECRET else source_object.get("data") or {}

    def keys(self) -> list[str]:
        return list({**self._plain, **self._encoded})

    def __contains__(self, key: str) -> bool:
        return key in self._encoded or key in self._plain

    def content(self, key: str) -> bytes:
        return b64decode(self._encoded[key]) if key in self._encoded else self._plain[key].encode()


def _item_mode(item: Mapping[str, Any], mode: int) -> int:
    return mode if item.get("mode") is None else int(item["mode"])


def _check_relative(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ContainerConfigError(
            f'the path "{path}" leads out of the volume; give one without a leading / and without ..'
        )
    return path


def _downward_files(context: VolumeContext, source: Mapping[str, Any]) -> Files:
    mode = _default_mode(source)
    files = {}
    for item in source.get("items") or ():
        if item.get("fieldRef"):
            content = _field_content(context, item["fieldRef"]["fieldPath"])
        else:
            content = context.resource(item.get("resourceFieldRef") or {}).encode()
        files[_check_relative(item["path"])] = (context.space.take(content), _item_mode(item, mode))
    return files


def _field_content(context: VolumeContext, path: str) -> bytes:
    if path not in context.space.fields:
        context.space.fields[path] = _field_text(context, path).encode()
    return context.space.fields[path]


def _field_text(context: VolumeContext, path: str) -> str:
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = context.pod.labels if path == "metadata.labels" else context.pod.annotations
        return "\n".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in sorted(pairs.items()))
    return context.field_text(path)


def _projected_files(context: VolumeContext, source: Mapping[str, Any]) -> Files:
    mode = {"defaultMode": _default_mode(source)}
    files: dict[str, tuple[bytes, int]] = {}
    for part in source.get("sources") or ():
        for kind, inner in part.items():
            if kind == "serviceAccountToken":
                context.space.take_token()
                seconds = int(inner.get("expirationSeconds") or DEFAULT_SECONDS)
                token = context.tokens.token(context.pod, inner.get("audience") or "", seconds)
                files[_check_relative(inner["path"])] = (token.encode(), mode["defaultMode"])
                continue
            if kind not in ("configMap", "secret", "downwardAPI"):
                raise ContainerConfigError(
                    f"rowlock does not project {kind}; it projects configMap, secret, downwardAPI"
                )
            files |= _FILE_SOURCES[kind](context, {**inner, **mode})
    return files


_FILE_SOURCES: Mapping[str, Callable[[VolumeContext, Mapping[str, Any]], Files]] = {
    "configMap": _config_map_files,
    "secret": _secret_files,
    "downwardAPI": _downward_files,
    "projected": _projected_files,
}


def _rewrite_hostfile(context: VolumeContext, files: Files) -> Files:
    """The files, with an MPI hostfile rewritten where pods have no addresses of their own."""
    if context.rewrite_hostfile is None or "hostfile" not in files:
        return files
    content, mode = files["hostfile"]
    return {**files, "hostfile": (context.rewrite_hostfile(content.decode()).encode(), mode)}


# ---------------------------------------------------------------- mounts


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of a volume in a container: `sub_path` is a path inside the volume, "" = all of it."""

    volume: str
    target: str
    sub_path: str = ""
    read_only: bool = False


def resolve_mounts(
    container: ContainerSpec, expand: Callable[[str], str], pod_volumes: Sequence[Volume]
) -> list[Mount]:
    """The container's mounts, outer ones first; files of ConfigMaps, Secrets and fields are read-only.

    Raises ContainerConfigError for a path that leads out of its volume."""
    mounts, read_only_by_name = list[Mount](), {v.name: v.read_only or v.kind == "files" for v in pod_volumes}
    if len(container.volume_mounts) > MOST_MOUNTS:
        raise ContainerConfigError(
            f"container {container.name} has {len(container.volume_mounts)} mounts, and a node makes {MOST_MOUNTS} at most"
        )
    volume_mounts = [m for m in container.volume_mounts if m["name"] in read_only_by_name or not is_added(m["name"])]
    for mount in sorted(volume_mounts, key=lambda m: m["mountPath"].rstrip("/").count("/")):
        sub = mount.get("subPath") or expand(mount.get("subPathExpr") or "")
        if mount["name"] not in read_only_by_name:
            raise ContainerConfigError(
                f'container {container.name} mounts "{mount["name"]}", which is not a volume of the pod'
            )
        try:
            inside = _check_relative(sub)
        except ContainerConfigError as missing:
            raise ContainerConfigError(
                f'failed to prepare subPath for volumeMount "{mount["name"]}": {missing}'
            ) from None
        read_only = bool(mount.get("readOnly")) or read_only_by_name[mount["name"]]
        mounts.append(Mount(mount["name"], "/" + mount["mountPath"].strip("/"), inside, read_only))
    return mounts
