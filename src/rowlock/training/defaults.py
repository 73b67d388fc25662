"""A job object → `Job`: the defaults that the operator applies in memory at every look, never in the store.

Order as in the operator: clean-up policy, the framework's own fields, replica types in their canonical case, then
each replica's number, restart policy and default port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.objects import Object, name, namespace, uid
from rowlock.training.framework import Framework, Job, Port, Replica, RunPolicy


def read(framework: Framework, obj: Object) -> Job:
    """The job with its defaults."""
    spec = framework.defaults(obj.get("spec") or {})
    replicas = {r.type: r for r in sorted(_replicas(framework, spec), key=lambda r: r.type)}
    return Job(framework, obj, name(obj), namespace(obj), uid(obj), spec, replicas, run_policy(spec))


def run_policy(spec: Mapping[str, Any]) -> RunPolicy:
    """`spec.runPolicy`; MPIJob's older `spec.cleanPodPolicy` counts where the policy has none."""
    policy = spec.get("runPolicy") or {}
    scheduling = policy.get("schedulingPolicy") or {}
    return RunPolicy(
        clean=policy.get("cleanPodPolicy") or "None",
        ttl=policy.get("ttlSecondsAfterFinished"),
        deadline=policy.get("activeDeadlineSeconds"),
        backoff=policy.get("backoffLimit"),
        suspend=bool(policy.get("suspend")),
        managed_by=policy.get("managedBy"),
        min_available=scheduling.get("minAvailable"),
    )


def _replicas(framework: Framework, spec: Object) -> list[Replica]:
    found = {t: r for t, r in (spec.get(framework.replicas) or {}).items() if r is not None}
    if framework.any_case:
        canonical = {role.lower(): role for role in framework.roles}
        found = {canonical.get(t.lower(), t): r for t, r in sorted(found.items(), reverse=True)}
    return [_replica(framework, t, r) for t, r in found.items()]


def _replica(framework: Framework, type_: str, raw: Object) -> Replica:
    template, count = raw.get("template") or {}, raw.get("replicas")
    return Replica(
        type=type_,
        count=framework.default_counts.get(type_, 1) if count is None else int(count),
        restart_policy=raw.get("restartPolicy") or framework.restart_policy,
        template=with_port(template, framework.container, framework.port) if framework.port.number else template,
    )


def with_port(template: Object, main: str, port: Port) -> Object:
    """The template whose main container (else the first) has the port under its name."""
    spec = template.get("spec") or {}
    containers = list(spec.get("containers") or ())
    if not containers:
        return template
    at = next((i for i, c in enumerate(containers) if c.get("name") == main), 0)
    ports = list(containers[at].get("ports") or ())
    if any(p.get("name") == port.name for p in ports):
        return template
    ports.append({"name": port.name, "containerPort": port.number})
    containers[at] = {**containers[at], "ports": ports}
    return {**template, "spec": {**spec, "containers": containers}}
