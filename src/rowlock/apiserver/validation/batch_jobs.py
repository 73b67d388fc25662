"""Makes the rules of batch/v1 Jobs and CronJobs, which stand in `training`, available in `rules.txt`. Pure.

A refusal of a changed pod template repeats the whole template as a real server prints it: with Go's field names, including empty
fields. The table of types has the fields, their order and pointers; this module has the differences between the server's internal
types and the API's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowlock.apiserver.schema import structs, types
from rowlock.apiserver.validation.rules import Scope, check_struct, rule
from rowlock.documents.field_errors import Causes
from rowlock.errors import Cause
from rowlock.objects import Object
from rowlock.training.batch_job.admission import spec_rules, updates
from rowlock.training.cron_job import admission


def _show(name: str, value: dict[str, Any]) -> Any:
    group = "core" if name == "PodTemplateSpec" else "batch"
    return go_value(f"io.k8s.api.{group}.v1.{name}", value)


@rule
def batch_job_fields(spec: dict[str, Any], scope: Scope) -> list[Cause]:
    """What holds of the spec of a Job, and of that in the template of a CronJob."""
    return check_struct("batch.v1.JobSpec fields", spec, scope)


@rule
def batch_job_spec(spec: dict[str, Any], _: Scope) -> Causes:
    yield from spec_rules.job_modes(spec)
    yield from spec_rules.job_failure_policy(spec)
    yield from spec_rules.job_success_policy(spec, _show)


def _register(name: str, *causes_of: Callable[[dict[str, Any]], Causes]) -> None:
    def check(value: dict[str, Any], _: Scope) -> Causes:
        for causes in causes_of:
            yield from causes(value)

    check.__name__ = name
    rule(check)


_register("batch_job", spec_rules.job_labels, spec_rules.job_hostnames)
_register("batch_job_template", spec_rules.job_template)
_register("batch_job_selector", spec_rules.job_selector)
_register("batch_job_name", spec_rules.job_name_warnings)
_register("cron_job_name", admission.cron_name)
_register("cron_job_schedule", admission.cron_schedule)
_register("cron_job_time_zone", admission.cron_time_zone)
_register("cron_job_selector", admission.cron_job_selector)


def job_update_causes(old: Object, new: Object) -> Causes:
    """The forbidden changes in an update of a Job."""
    return updates.job_update_causes(old, new, _show)


def job_status_causes(old: Object, new: Object) -> list[Cause]:
    """The forbidden changes in a status update of a Job."""
    return list(updates.job_status_causes(old, new, _show))


_CORE = "io.k8s.api.core.v1."
_POD_SPEC, _POD_SECURITY = _CORE + "PodSpec", _CORE + "PodSecurityContext"
_OWN_JSON = frozenset(
    {
        types.QUANTITY, types.INT_OR_STRING, types.TIME, types.MICRO_TIME, types.META,
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    }
)  # fmt: skip
"""Types that are printed as in the API."""
_HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
"""Fields of a pod that the internal types have in its security context, before the other fields there."""
_MOVED = {
    "setHostnameAsFQDN": "subdomain", "preemptionPolicy": "priority", "overhead": "runtimeClassName",
    "fsGroupChangePolicy": "fsGroup",
}  # fmt: skip
"""Fields with another position in the internal types: field → the field before it."""
_NAMES = {
    "tty": "TTY", "dnsPolicy": "DNSPolicy", "dnsConfig": "DNSConfig", "os": "OS", "seLinuxOptions": "SELinuxOptions",
    "seLinuxChangePolicy": "SELinuxChangePolicy", "fsGroup": "FSGroup", "fsGroupChangePolicy": "FSGroupChangePolicy",
    "httpGet": "HTTPGet", "httpHeaders": "HTTPHeaders", "tcpSocket": "TCPSocket", "grpc": "GRPC", "nfs": "NFS", "rbd": "RBD",
    "csi": "CSI", "iscsi": "ISCSI", "fc": "FC", "fsType": "FSType", "ip": "IP", "apiVersion": "APIVersion", "cephfs": "CephFS",
    "gcePersistentDisk": "GCEPersistentDisk", "awsElasticBlockStore": "AWSElasticBlockStore", "pdName": "PDName", "uid": "UID",
}  # fmt: skip
"""Go field names that are not just the API's with an initial capital."""


def go_value(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """A struct as the JSON of the server's internal Go type."""
    node = types.schema(name)
    fields = structs.fields(node)
    shown: dict[str, Any] = {}
    for key in _in_order(list(fields)):
        about = fields[key]
        if name == _POD_SPEC and (key in _HOST_FIELDS or key == "serviceAccount"):
            continue
        child = node["properties"][key]
        if child.get("$ref") == types.META:
            shown |= {k: dict(sorted(v.items())) if isinstance(v, dict) else v for k, v in value.get(key, {}).items()}
            continue
        part = _part(child, value.get(key), pointer=about.pointer)
        if name == _POD_SPEC and key == "securityContext" and part is not None:
            host = {k: _part(node["properties"][k], value.get(k), pointer=fields[k].pointer) for k in _HOST_FIELDS}
            part = {_go_name(k): v for k, v in host.items()} | part
        shown[_go_name(key)] = part
    return shown


def _in_order(keys: list[str]) -> list[str]:
    for key, before in _MOVED.items():
        if key in keys and before in keys:
            keys.remove(key)
            keys.insert(keys.index(before) + 1, key)
    return keys


def _go_name(key: str) -> str:
    return _NAMES.get(key) or key[0].upper() + key[1:]


def _part(node: types.Schema, value: Any, *, pointer: bool = False) -> Any:
    ref = node.get("$ref")
    if value is None:
        if pointer:
            return None
        return go_value(ref, {}) if ref and ref not in _OWN_JSON and _is_struct(ref) else structs.zero_value(node)
    if ref:
        return value if ref in _OWN_JSON or not _is_struct(ref) else go_value(ref, value)
    if node.get("type") == "array":
        return [_part(node.get("items") or {}, item) for item in value]
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def _is_struct(ref: str) -> bool:
    return "properties" in types.schema(ref)
