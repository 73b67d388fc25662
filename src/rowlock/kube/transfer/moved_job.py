"""What a job of one cluster becomes on another one: its request with the code's new paths, and the objects with the code. Pure.

The code travels as one packed file in a ConfigMap. An init container with the job's own image unpacks it into an
emptyDir, so the program may write beside its source. Only paths in its command line change.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock import kinds
from rowlock.errors import BadRequest
from rowlock.gangs.host_image import is_host_image
from rowlock.objects import Object, dig, name, owner_reference
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.workloads.submission import Submission, parse_submission

NOT_KEPT = "(not kept)"
SOURCE_DIR = "/rowlock/source"
_PACKED_DIR, _PACKED_FILE = "/rowlock/packed", "source.tar.gz"
MAX_CODE_BYTES = 1_000_000
"""Bytes of packed code at most: a ConfigMap holds 1 MiB."""
_CONSOLE_FIELDS = ("stdin", "stdinOnce", "tty", "attach")


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """The options of `rowlock move`; "" keeps the original value."""

    name: str = ""
    project: str = ""
    image: str = ""


def moved_request(kept: Object, code_roots: Sequence[str], options: MoveOptions) -> tuple[Submission, list[str]]:
    """(request for the other cluster, a notice for each change). `code_roots`: the directories whose files are moved. Raises BadRequest,
    with advice, for parts of the request that cannot work there."""
    body = _lead_to_source(kept, code_roots)
    body["name"], body["projectId"] = options.name or body.get("name"), options.project or body.get("projectId")
    had_shell = bool(body.pop("shellEnvironment", None))
    roles = [role for role in (body["spec"], body.get("masterSpec")) if isinstance(role, dict)]
    ran_here = any(is_host_image(str(role.get("image") or "")) for role in roles)
    if ran_here and not options.image:
        raise BadRequest(
            f"{body['name']} ran programs of this machine, and pods of another cluster run images: name an image that has"
            " what it needs with --image NAME"
        )
    notes = (
        ["the variables of your shell stay here: give what it needs with --env at a new submit"] if had_shell else []
    )
    if body.pop("after", None):
        notes.append("the jobs that it waits for are here: it does not wait there")
    for role in roles:
        for console_field in _CONSOLE_FIELDS:
            role.pop(console_field, None)
        if options.image and (role is body["spec"] or role.get("image")):
            role["image"] = options.image
        if ran_here:
            notes += _leave_this_machine(role, bool(code_roots))
    if NOT_KEPT in json.dumps(body, ensure_ascii=False):
        raise BadRequest("its request held secret values, which were not kept: submit it there anew, with them")
    return parse_submission(body), list(dict.fromkeys(notes))


def _lead_to_source(kept: Object, code_roots: Sequence[str]) -> dict[str, Any]:
    """Replace every path below a root by the path of the unpacked code. Longer roots first, because one root may contain
    another."""
    roots = sorted({root.rstrip("/") for root in code_roots} - {""}, key=len, reverse=True)
    paths = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, roots))})(?![\w.-])") if roots else None

    def lead_value(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: lead_value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [lead_value(item) for item in value]
        return paths.sub(SOURCE_DIR, value) if paths and isinstance(value, str) else value

    return {key: lead_value(value) if key in ("spec", "masterSpec") else value for key, value in kept.items()}


def _is_in(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _leave_this_machine(role: dict[str, Any], has_code: bool) -> Iterator[str]:
    """Replace the interpreter's path by its name, and this machine's working directory. Yields notices about changes and remaining local
    paths."""
    command = role.get("command")
    words = list(command) if isinstance(command, list) else []
    if words and words[0].startswith("/") and not _is_in(words[0], SOURCE_DIR):
        program = words[0].rsplit("/", 1)[-1]
        yield f"the program is the image's `{program}`, not {words[0]}"
        words[0] = program
        role["command"] = words
    working_dir = str(role.get("workingDir") or "")
    if working_dir and not _is_in(working_dir, SOURCE_DIR):
        if not has_code:
            role.pop("workingDir")
        else:
            role["workingDir"] = SOURCE_DIR
        yield f"it ran in {working_dir}; there it runs in {role.get('workingDir') or 'the directory of the image'}"
    for word in words[1:]:
        if word.startswith("/") and not _is_in(word, SOURCE_DIR):
            yield f"{word} is a path of this machine: the pods must have it too"


def code_object(job_name: str, namespace: str, identity: str, packed: bytes) -> Object:
    """The ConfigMap with the packed code. Raises BadRequest when it is too large for one."""
    if len(packed) > MAX_CODE_BYTES:
        raise BadRequest(
            f"its code is {len(packed) / 1e6:.1f} MB packed, and a ConfigMap holds 1: build it into the image"
            " (`rowlock build`), and move the job with --without-code --image NAME"
        )
    return {
        "apiVersion": "v1",
        "kind": kinds.CONFIG_MAP.name,
        "metadata": {"name": f"{job_name}-source-{identity[:8]}", "namespace": namespace},
        "binaryData": {_PACKED_FILE: b64encode(packed).decode()},
    }


def owned_by(obj: Object, job: Object) -> Object:
    """A patch that makes the job own the object, so that both are deleted together."""
    return {"metadata": {"ownerReferences": [{**owner_reference(job), "controller": False}]}}


def with_code(job: Object, code: Object) -> Object:
    """The job with an init container and volumes that put the code into `SOURCE_DIR`."""
    field = FRAMEWORKS[_kind(job)].replicas
    replicas = {role: _replica_with_code(replica, name(code)) for role, replica in job["spec"][field].items()}
    return {**job, "spec": {**job["spec"], field: replicas}}


def _kind(job: Object) -> kinds.Kind:
    kind = kinds.by_api_version(str(job["apiVersion"]), str(job["kind"]))
    assert kind is not None
    return kind


def _replica_with_code(replica: dict[str, Any], config_map: str) -> dict[str, Any]:
    spec = replica["template"]["spec"]
    source = {"name": "rowlock-source", "mountPath": SOURCE_DIR}
    packed = {"name": "rowlock-packed", "mountPath": _PACKED_DIR, "readOnly": True}
    first = spec["containers"][0]
    unpack = {
        "name": "rowlock-source",
        "image": first["image"],
        "command": ["tar", "-xzf", f"{_PACKED_DIR}/{_PACKED_FILE}", "-C", SOURCE_DIR],
        "volumeMounts": [source, packed],
        **{key: first[key] for key in ("imagePullPolicy", "securityContext") if key in first},
    }
    containers = [{**c, "volumeMounts": [*(c.get("volumeMounts") or ()), source]} for c in spec["containers"]]
    volumes = [
        {"name": "rowlock-source", "emptyDir": {}},
        {"name": "rowlock-packed", "configMap": {"name": config_map}},
    ]
    filled = {
        **spec,
        "initContainers": [*(spec.get("initContainers") or ()), unpack],
        "containers": containers,
        "volumes": [*(spec.get("volumes") or ()), *volumes],
    }
    return {**replica, "template": {**replica["template"], "spec": filled}}


def needed_objects(job: Object) -> set[tuple[kinds.Kind, str]]:
    """The claims, ConfigMaps and Secrets that the pods refer to and without which they would wait for ever."""
    needed: set[tuple[kinds.Kind, str]] = set()
    for replica in job["spec"][FRAMEWORKS[_kind(job)].replicas].values():
        spec = replica["template"]["spec"]
        for volume in spec.get("volumes") or ():
            for kind, path in _VOLUME_SOURCES:
                if found := dig(volume, path):
                    needed.add((kind, str(found)))
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            sources = [
                *(container.get("envFrom") or ()),
                *(e.get("valueFrom") or {} for e in container.get("env") or ()),
            ]
            for source in sources:
                for kind, path in _ENVIRONMENT_SOURCES:
                    if found := dig(source, path):
                        needed.add((kind, str(found)))
    return needed


_VOLUME_SOURCES = (
    (kinds.PERSISTENT_VOLUME_CLAIM, "persistentVolumeClaim.claimName"),
    (kinds.CONFIG_MAP, "configMap.name"),
    (kinds.SECRET, "secret.secretName"),
)
_ENVIRONMENT_SOURCES = (
    (kinds.CONFIG_MAP, "configMapRef.name"),
    (kinds.SECRET, "secretRef.name"),
    (kinds.CONFIG_MAP, "configMapKeyRef.name"),
    (kinds.SECRET, "secretKeyRef.name"),
)
