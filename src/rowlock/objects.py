"""Common functions on objects, which are JSON dicts.

Objects are values: never change one that came from an `Api` or a `View`. `with_field()` makes a changed copy that shares the
unchanged branches. Times inside objects are RFC 3339 text; `now` arguments are seconds since the epoch.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, wraps
from operator import is_
from typing import Any, NamedTuple, ParamSpec, TypeVar

from rowlock.errors import BadRequest

P = ParamSpec("P")
R = TypeVar("R")
Object = dict[str, Any]
"""A Kubernetes object as JSON. Treat as read-only unless you made it yourself."""
MAX_PATCH_DEPTH = 100
"""The deepest nesting of a merge patch, and of JSON in texts; no object of the API is nearly as deep."""


def copy_json(value: Any) -> Any:
    """A copy of a JSON value that may be changed; `copy.deepcopy`, which also keeps cycles, takes ten times as long."""
    if isinstance(value, dict):
        return {name: copy_json(inner) for name, inner in value.items()}
    return [copy_json(inner) for inner in value] if isinstance(value, list) else value


def written_json(text: object) -> Any:
    """The JSON that somebody has written into an annotation or a ConfigMap; None if it is none, or is nested deeper than anything of ours:
    functions that copy or encode such a value raise RecursionError, and fail for all users."""
    try:
        found = json.loads(str(text or "null"))
    except (ValueError, RecursionError):
        return None
    level = [found]
    for _ in range(MAX_PATCH_DEPTH + 1):
        containers = [inner for inner in level if isinstance(inner, (dict, list))]
        if not containers:
            return found
        level = [inner for outer in containers for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return None


class Key(NamedTuple):
    """Where an object lives: namespace ("" for cluster-scoped kinds) and name."""

    namespace: str
    name: str


def meta(obj: Mapping[str, Any]) -> dict[str, Any]:
    return obj.get("metadata") or {}


def name(obj: Mapping[str, Any]) -> str:
    return str(meta(obj).get("name") or "")


def namespace(obj: Mapping[str, Any]) -> str:
    return str(meta(obj).get("namespace") or "")


def key(obj: Mapping[str, Any]) -> Key:
    metadata = obj.get("metadata") or {}
    return Key(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))


MAX_DIGITS = 18
"""The most digits of a number from users: longer ones exceed 64 bits, and parsing them costs more than linear time."""


def as_sentence(clause: str) -> str:
    """A clause with an initial capital and a full stop."""
    return f"{clause[:1].upper()}{clause[1:]}."


def is_digits(text: str) -> bool:
    """Whether the text is at most `MAX_DIGITS` ASCII digits; `str.isdigit` alone also accepts "²", which `int` does not."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def is_dns_label(text: str) -> bool:
    """A label of RFC 1123: 1 to 63 lower case letters, digits and '-', with a letter or a digit at both ends."""
    return _DNS_LABEL.fullmatch(text) is not None


def uid(obj: Mapping[str, Any]) -> str:
    return str(meta(obj).get("uid") or "")


def labels(obj: Mapping[str, Any]) -> dict[str, str]:
    return meta(obj).get("labels") or {}


def annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    return meta(obj).get("annotations") or {}


def revision_text(obj: Mapping[str, Any]) -> str:
    """The resourceVersion as it is written; "" when the object was never stored."""
    return str(meta(obj).get("resourceVersion") or "")


def revision(obj: Mapping[str, Any]) -> int:
    """The resourceVersion as a number; 0 when the object was never stored."""
    return int(meta(obj).get("resourceVersion") or 0)


def keep_latest(size: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that caches a function whose last positional argument is an object: it keeps the result for the latest version of up to
    `size` objects. Versions are compared by identity, because objects are values; objects without a uid are not cached.
    The result must be a value, too."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        latest: dict[str, tuple[tuple[Any, ...], R]] = {}

        @wraps(function)
        def latest_result(*args: P.args, **kwargs: P.kwargs) -> R:
            obj_uid = uid(args[-1])  # type: ignore[arg-type]
            known = latest.get(obj_uid)
            if known is not None and len(known[0]) == len(args) and all(map(is_, known[0], args)):
                return known[1]
            result = function(*args, **kwargs)
            if obj_uid and not kwargs:
                if len(latest) >= size and obj_uid not in latest:
                    latest.clear()
                latest[obj_uid] = (args, result)
            return result

        return latest_result

    return decorate


def is_same_version(known: Mapping[str, Any] | None, obj: Mapping[str, Any]) -> bool:
    """Whether both are the same object at the same resourceVersion; one that was never stored equals only itself."""
    if known is None or known is obj:
        return known is obj
    return revision(obj) != 0 and revision(obj) == revision(known) and uid(obj) == uid(known)


def is_deleting(obj: Mapping[str, Any]) -> bool:
    return bool(meta(obj).get("deletionTimestamp"))


def phase(obj: Mapping[str, Any]) -> str:
    return str((obj.get("status") or {}).get("phase") or "")


FINAL_PHASES = ("Succeeded", "Failed")
"""The phases of a pod that has ended for good."""


def controller_of(obj: Mapping[str, Any]) -> dict[str, Any] | None:
    """The owner reference with `controller: true`, if there is one."""
    for owner in meta(obj).get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def is_controlled_by(obj: Mapping[str, Any], owner_uid: str) -> bool:
    """Whether the object of this uid is its controlling owner."""
    return (controller_of(obj) or {}).get("uid") == owner_uid


def owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """A controlling, deletion-blocking reference to `owner`, in the field order Kubernetes prints."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name(owner),
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition(obj: Mapping[str, Any], type_: str) -> dict[str, Any] | None:
    """The condition of that type, whatever its status."""
    for item in (obj.get("status") or {}).get("conditions") or ():
        if item.get("type") == type_:
            return dict(item)
    return None


def is_condition_true(obj: Mapping[str, Any], type_: str) -> bool:
    """True when the object has a condition of that type whose status is "True"."""
    match = condition(obj, type_)
    return match is not None and match.get("status") == "True"


def with_field(obj: Mapping[str, Any], path: str, value: Any) -> Object:
    """A copy of `obj` with `value` at the dotted `path` (None removes it); untouched branches are shared."""
    head, _, rest_of_path = path.partition(".")
    copy = dict(obj)
    if rest_of_path:
        value = with_field(copy.get(head) or {}, rest_of_path, value)
    if value is None:
        copy.pop(head, None)
    else:
        copy[head] = value
    return copy


def merge_patch(target: Any, patch: Any, depth: int = 0) -> Any:
    """The value after a merge patch (RFC 7386): null removes, objects merge, everything else replaces. Raises BadRequest."""
    if depth > MAX_PATCH_DEPTH:
        raise BadRequest(f"the patch is nested more than {MAX_PATCH_DEPTH} levels deep")
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for field, value in patch.items():
        if value is None:
            merged.pop(field, None)
        else:
            merged[field] = merge_patch(merged.get(field), value, depth + 1)
    return merged


def dig(obj: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path, or `default` where any step is missing or null."""
    for step in path.split("."):
        if not isinstance(obj, dict) and not isinstance(
            obj, Mapping
        ):  # the check for an abstract class takes three times as long
            return default
        obj = obj.get(step)
        if obj is None:
            return default
    return obj


def timestamp(now: float) -> str:
    """metav1.Time: whole seconds, UTC, with Z; later times become the last second of the year 9999."""
    return _format_second(int(min(max(now, 0.0), _LAST_SECOND)))


_LAST_SECOND = 253_402_300_799.0  # RFC 3339 has years of four digits


@lru_cache(64)
def _format_second(second: int) -> str:
    """Cached, because thousands of objects are written in the same second."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(now: float) -> str:
    """metav1.MicroTime: six decimals, UTC, with Z."""
    return datetime.fromtimestamp(min(max(now, 0.0), _LAST_SECOND), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds(text: str | None) -> float:
    """RFC 3339 text as seconds since the epoch; 0.0 for None and "". Raises ValueError."""
    if not text:
        return 0.0
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


LATE_LOOK = 2.0
"""Seconds between an end and its observation within which the observation's time is used: times in objects are whole seconds."""


def end_time(job: Object, pods: Iterable[Object], now: float, *, is_told: bool = True) -> float:
    """When a job that is observed as ended at `now` ended: the end of its pods' last program if known, else the time in its status if
    `is_told`. It is `now` unless that time is more than `LATE_LOOK` ago, as after a server was down."""
    known = _last_end(pods)
    if known is None and is_told:
        failed = condition(job, "Failed") or {}
        since = failed.get("lastTransitionTime") if failed.get("status") == "True" else None
        known = _time_or_zero(dig(job, "status.completionTime", None) or since)
    created = _time_or_zero(meta(job).get("creationTimestamp"))
    return known if known and created <= known < now - LATE_LOOK else now


def start_time(pods: Iterable[Object], now: float) -> float:
    """When the last of the pods' programs started that are first observed at `now`: the time in the pods' status if that is more
    than `LATE_LOOK` ago, as after a server was down, else `now`."""
    starts = [
        _time_or_zero(dig(status, f"state.{state}.startedAt", None))
        for pod in pods
        for status in dig(pod, "status.containerStatuses", None) or ()
        for state in ("running", "terminated")
    ]
    known = max(starts, default=0.0)
    return known if 0.0 < known < now - LATE_LOOK else now


def _last_end(pods: Iterable[Object]) -> float | None:
    """The latest end of the pods' programs; None while a pod may run, and when no pod has an end time."""
    ends = list[float]()
    for pod in pods:
        if phase(pod) not in FINAL_PHASES:
            return None
        ends += [
            _time_or_zero(dig(status, "state.terminated.finishedAt", None))
            for status in dig(pod, "status.containerStatuses", None) or ()
        ]
    return max(ends, default=0.0) or None


def _time_or_zero(text: Any) -> float:
    """A time as seconds since the epoch; 0.0 if it is missing or invalid, since statuses are untrusted."""
    try:
        return seconds(str(text or ""))
    except ValueError:
        return 0.0


def by_name(objects: Iterable[Object]) -> dict[str, Object]:
    return {name(o): o for o in objects}
