"""A job object → `Job`, with the defaults that the operator applies in memory at every reconcile, never in the store.

Order as in the operator: clean-up policy, the framework's own fields, replica types in their canonical case, then
each replica's number, restart policy and default port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rowlock.objects import Object, keep_latest, name, namespace, uid
from rowlock.objects import annotations as annotations_of
from rowlock.training.framework import Framework
from rowlock.training.model import REQUEST_ANNOTATION, Job, Port, Replica, RunPolicy

LINGER_S = 30.0
"""Seconds that other ranks of a submitted job get to end (save, evaluate) after rank 0 has succeeded."""


@keep_latest(64)
def parse_job(framework: Framework, obj: Object) -> Job:
    """The job with its defaults."""
    spec = framework.apply_defaults(obj.get("spec") or {})
    replicas = {r.type: r for r in sorted(_parse_replicas(framework, spec), key=lambda r: r.type)}
    policy = run_policy(spec)
    if REQUEST_ANNOTATION in annotations_of(obj):
        policy = _submitted_policy(policy, spec.get("runPolicy") or {})
    return Job(framework, obj, name(obj), namespace(obj), uid(obj), spec, replicas, policy)


def _submitted_policy(policy: RunPolicy, given: Mapping[str, Any]) -> RunPolicy:
    """The policy of a job that was submitted through rowlock: unless it sets a cleanPodPolicy, its running pods are deleted once it has
    ended, so that it holds no GPUs."""
    if not given.get("cleanPodPolicy"):
        policy = replace(policy, clean_pod_policy="Running", linger=LINGER_S)
    return replace(policy, counts_job_restarts=True)


def run_policy(spec: Mapping[str, Any]) -> RunPolicy:
    """Parse `spec.runPolicy`."""
    policy = spec.get("runPolicy") or {}
    scheduling = policy.get("schedulingPolicy") or {}
    return RunPolicy(
        clean_pod_policy=policy.get("cleanPodPolicy") or "None",
        ttl=policy.get("ttlSecondsAfterFinished"),
        deadline=policy.get("activeDeadlineSeconds"),
        backoff_limit=policy.get("backoffLimit"),
        suspend=bool(policy.get("suspend")),
        managed_by=policy.get("managedBy"),
        min_available=scheduling.get("minAvailable"),
    )


def _parse_replicas(framework: Framework, spec: Object) -> list[Replica]:
    by_type = {t: r for t, r in (spec.get(framework.replicas) or {}).items() if r is not None}
    if framework.any_role_case:
        canonical = {role.lower(): role for role in framework.roles}
        by_type = {canonical.get(t.lower(), t): r for t, r in sorted(by_type.items(), reverse=True)}
    return [_parse_replica(framework, t, r) for t, r in by_type.items()]


def _parse_replica(framework: Framework, type_: str, raw: Object) -> Replica:
    template, count = raw.get("template") or {}, raw.get("replicas")
    return Replica(
        type=type_,
        count=framework.default_counts.get(type_, 1) if count is None else int(count),
        restart_policy=raw.get("restartPolicy") or framework.restart_policy,
        template=with_port(template, framework.container, framework.port) if framework.port.number else template,
    )


def with_port(template: Object, container_name: str, port: Port) -> Object:
    """The template with the port added to its main container (else the first), unless it has a port of that name."""
    spec = template.get("spec") or {}
    containers = list(spec.get("containers") or ())
    if not containers:
        return template
    index = next((i for i, c in enumerate(containers) if c.get("name") == container_name), 0)
    ports = list(containers[index].get("ports") or ())
    if any(p.get("name") == port.name for p in ports):
        return template
    ports.append({"name": port.name, "containerPort": port.number})
    containers[index] = {**containers[index], "ports": ports}
    return {**template, "spec": {**spec, "containers": containers}}
