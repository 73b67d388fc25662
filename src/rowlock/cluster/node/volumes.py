"""A pod's volumes as values: what each is made of and what lies in it. Pure; `volume_directories.py` makes them real.

`volumes(pod, lookup, resource)` looks at the pod and the ConfigMaps, Secrets and claims of its namespace as they are
now; called again later it gives what the files should say by then. What cannot be mounted is `Missing`, in the
kubelet's words: the pod waits and an event `FailedMount` says why.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock import kinds
from rowlock.cluster.node.environment import Lookup, Missing
from rowlock.kinds import Kind
from rowlock.objects import Object, annotations, dig, labels, name, namespace, uid
from rowlock.quantity import whole

READABLE = 0o644
TOKENS = "kube-api-access-"
"""The token volume that admission adds to every pod as a real API server does; the embedded node mints no tokens."""
KNOWN = ("emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected", "persistentVolumeClaim")

Files = Mapping[str, tuple[bytes, int]]
"""Path inside the volume → (content, mode)."""
Field = Callable[[str], str]
"""A path such as `metadata.name` → its text."""
Resource = Callable[[Mapping[str, Any]], str]
"""A resourceFieldRef → its text."""


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume. `kind`: empty, memory (both with an optional `limit` in bytes), files, host (`path`, `check` = its
    type) or claim (`path` = the directory's name)."""

    name: str
    kind: str
    files: Files = field(default_factory=dict)
    path: str = ""
    check: str = ""
    limit: int | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Sight:
    """What a volume may show: objects of the pod's namespace, fields and resources of the pod."""

    pod: Object
    lookup: Lookup
    field: Field
    resource: Resource


def volumes(sight: Sight) -> tuple[Volume, ...]:
    """Every volume of the pod. Raises Missing with a sentence for the first that cannot be mounted."""
    return tuple(_volume(sight, v) for v in dig(sight.pod, "spec.volumes", ()) if not ignored(v["name"]))


def ignored(volume: str) -> bool:
    return volume.startswith(TOKENS)


def _volume(sight: Sight, volume: Mapping[str, Any]) -> Volume:
    called = volume["name"]
    kind = next((k for k in volume if k != "name"), "emptyDir")
    source = volume.get(kind) or {}
    try:
        if kind == "emptyDir":
            limit = whole(source["sizeLimit"]) if source.get("sizeLimit") is not None else None
            return Volume(called, _medium(source.get("medium") or ""), limit=limit if limit and limit > 0 else None)
        if kind == "hostPath":
            return Volume(called, "host", path=source["path"], check=source.get("type") or "")
        if kind == "persistentVolumeClaim":
            return _claim(sight, called, source)
        if kind in KNOWN:
            return Volume(called, "files", files=_FILES[kind](sight, source))
        raise Missing(f"the embedded node does not mount {kind}; it knows {', '.join(KNOWN)}")
    except Missing as missing:
        text = f'MountVolume.SetUp failed for volume "{called}" : {missing.problem.message}'
        raise Missing(text, "FailedMount") from None


def _medium(medium: str) -> str:
    if medium not in ("", "Memory"):
        raise Missing(f'the embedded node has no medium "{medium}"; it knows "" (disk) and Memory')
    return "memory" if medium else "empty"


def _claim(sight: Sight, called: str, source: Mapping[str, Any]) -> Volume:
    wanted = source["claimName"]
    claim = sight.lookup(kinds.PERSISTENT_VOLUME_CLAIM, namespace(sight.pod), wanted)
    if claim is None:
        raise Missing(f'persistentvolumeclaim "{wanted}" not found')
    if dig(claim, "spec.volumeMode") == "Block":
        raise Missing(f'persistentvolumeclaim "{wanted}" wants a block device; the embedded node gives directories')
    return Volume(called, "claim", path=claim_directory(claim), read_only=bool(source.get("readOnly")))


def claim_directory(claim: Object) -> str:
    """The name of a claim's directory: a claim that is deleted and made again is another one."""
    return f"{namespace(claim)}_{name(claim)}_{uid(claim)}"


# ---------------------------------------------------------------- files


def _config_map(sight: Sight, source: Mapping[str, Any]) -> Files:
    return _keyed(sight, source, (kinds.CONFIG_MAP, source.get("name", "")), _mode(source))


def _secret(sight: Sight, source: Mapping[str, Any]) -> Files:
    return _keyed(sight, source, (kinds.SECRET, source.get("secretName") or source.get("name", "")), _mode(source))


def _mode(source: Mapping[str, Any]) -> int:
    given = source.get("defaultMode")
    return READABLE if given is None else int(given)


_NAMES = {"ConfigMap": ("configmap", "configmap references non-existent config key"),
          "Secret": ("secret", "references non-existent secret key")}  # fmt: skip


def _keyed(sight: Sight, source: Mapping[str, Any], what: tuple[Kind, str], mode: int) -> Files:
    kind, called = what
    found = sight.lookup(kind, namespace(sight.pod), called)
    word, absent = _NAMES[kind.name]
    if found is None and not source.get("optional"):
        raise Missing(f'{word} "{called}" not found')
    data = _data(kind, found or {})
    if source.get("items") is None:
        return {key: (content, mode) for key, content in data.items()}
    files = {}
    for item in source["items"]:
        if item["key"] in data:
            files[_inside(item["path"])] = (data[item["key"]], _item_mode(item, mode))
        elif not source.get("optional"):
            raise Missing(f"{absent}: {item['key']}")
    return files


def _data(kind: Kind, found: Object) -> dict[str, bytes]:
    encoded = found.get("data" if kind is kinds.SECRET else "binaryData") or {}
    plain = {} if kind is kinds.SECRET else found.get("data") or {}
    return {k: v.encode() for k, v in plain.items()} | {k: b64decode(v) for k, v in encoded.items()}


def _item_mode(item: Mapping[str, Any], mode: int) -> int:
    return mode if item.get("mode") is None else int(item["mode"])


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise Missing(f'the path "{path}" leads out of the volume; give one without a leading / and without ..')
    return path


def _downward(sight: Sight, source: Mapping[str, Any]) -> Files:
    mode = _mode(source)
    files = {}
    for item in source.get("items") or ():
        if item.get("fieldRef"):
            text = _field(sight, item["fieldRef"]["fieldPath"])
        else:
            text = sight.resource(item.get("resourceFieldRef") or {})
        files[_inside(item["path"])] = (text.encode(), _item_mode(item, mode))
    return files


def _field(sight: Sight, path: str) -> str:
    if path in ("metadata.labels", "metadata.annotations"):
        pairs = labels(sight.pod) if path == "metadata.labels" else annotations(sight.pod)
        return "\n".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in sorted(pairs.items()))
    return sight.field(path)


def _projected(sight: Sight, source: Mapping[str, Any]) -> Files:
    mode = {"defaultMode": _mode(source)}
    files: dict[str, tuple[bytes, int]] = {}
    for part in source.get("sources") or ():
        for kind, inner in part.items():
            if kind == "serviceAccountToken":
                raise Missing(
                    "the embedded node makes no service account tokens: take a Secret with a token of your own"
                )
            if kind not in ("configMap", "secret", "downwardAPI"):
                raise Missing(f"the embedded node does not project {kind}; it knows configMap, secret, downwardAPI")
            files |= _FILES[kind](sight, {**inner, **mode})
    return files


_FILES: Mapping[str, Callable[[Sight, Mapping[str, Any]], Files]] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
}


# ---------------------------------------------------------------- mounts


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a container sees a volume: `sub` is a path inside it, "" = all of it."""

    volume: str
    target: str
    sub: str = ""
    read_only: bool = False


def mounts(container: Mapping[str, Any], expand: Callable[[str], str], known: Sequence[Volume]) -> Iterator[Mount]:
    """The container's mounts, outer ones first. Raises Missing for a path that leads out of its volume."""
    fixed = {v.name: v.read_only for v in known}
    wanted = [m for m in container.get("volumeMounts") or () if not ignored(m["name"])]
    for mount in sorted(wanted, key=lambda m: m["mountPath"].rstrip("/").count("/")):
        sub = mount.get("subPath") or expand(mount.get("subPathExpr") or "")
        if mount["name"] not in fixed:
            raise Missing(f'container {container["name"]} mounts "{mount["name"]}", which is no volume of the pod')
        try:
            inside = _inside(sub)
        except Missing as missing:
            raise Missing(f'failed to prepare subPath for volumeMount "{mount["name"]}": {missing}') from None
        read_only = bool(mount.get("readOnly")) or fixed[mount["name"]]
        yield Mount(mount["name"], "/" + mount["mountPath"].strip("/"), inside, read_only)


def with_hosts(volume: Volume, rewrite: Callable[[str], str]) -> Volume:
    """The volume with its MPI hostfile rewritten, for a network where names and ports are."""
    if "hostfile" not in volume.files:
        return volume
    content, mode = volume.files["hostfile"]
    return replace(volume, files={**volume.files, "hostfile": (rewrite(content.decode()).encode(), mode)})


def shows_files(pod: Object) -> bool:
    """May the content of the pod's volumes change while it runs?"""
    return any(k in v for v in dig(pod, "spec.volumes", ()) for k in _FILES if not ignored(v["name"]))
