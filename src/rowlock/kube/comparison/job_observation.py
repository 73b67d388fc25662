"""What a cluster made of a job, without what differs from run to run (generated names, times, uids). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rowlock.objects import Object, dig, labels, name
from rowlock.objects import annotations as annotations_of

_OWN_ANNOTATIONS = ("kubectl.kubernetes.io/", "rowlock.dev/", "scheduling.", "cni.")
"""Prefixes of annotations that are not written by the training operator."""
_JOB_REASONS = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "Successful", "Exited", "Failed")


@dataclass(frozen=True, slots=True)
class JobObservation:
    """Section → lines, sorted if their order does not matter."""

    pods: tuple[str, ...]
    environment: tuple[str, ...]
    conditions: tuple[str, ...]
    events: tuple[str, ...]


def observe_job(job: Object, pods: Iterable[Object], events: Iterable[Object]) -> JobObservation:
    """The job, its pods and the events about it, as they are now."""
    by_name = sorted(pods, key=name)
    conditions = dig(job, "status.conditions", [])
    return JobObservation(
        tuple(line for pod in by_name for line in _pod_lines(pod)),
        tuple(line for pod in by_name for line in _environment_lines(pod)),
        tuple(f"{c.get('type')}={c.get('status')} {c.get('reason')}: {c.get('message')}" for c in conditions),
        tuple(sorted({line for event in events if (line := _event_line(job, event))})),
    )


def _containers(pod: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in ("initContainers", "containers"):
        for container in dig(pod, f"spec.{field}") or ():
            yield f"{name(pod)} {container.get('name')}", container


def _pod_lines(pod: Object) -> Iterator[str]:
    who = name(pod)
    yield f"{who} restartPolicy {dig(pod, 'spec.restartPolicy')}"
    yield from (f"{who} label {key}={value}" for key, value in sorted(labels(pod).items()) if key != "job-uid")
    for key, value in sorted(annotations_of(pod).items()):
        if not key.startswith(_OWN_ANNOTATIONS):
            yield f"{who} annotation {key}={value}"
    for place, container in _containers(pod):
        yield f"{place} image {container.get('image')}"
        for field in ("command", "args"):
            if container.get(field):
                yield f"{place} {field} {container[field]}"
        for port in container.get("ports") or ():
            yield f"{place} port {port.get('name')} {port.get('containerPort')}"


def _environment_lines(pod: Object) -> Iterator[str]:
    for place, container in _containers(pod):
        for variable in container.get("env") or ():
            yield f"{place} {variable['name']}={variable.get('value', variable.get('valueFrom', ''))}"


def _event_line(job: Object, event: Object) -> str:
    """The line of an event about the job by its controller; "" for others: events of kubelets and schedulers differ between clusters."""
    regarding = event.get("involvedObject") or {}
    if regarding.get("kind") != job.get("kind") or not str(event.get("reason")).startswith(_JOB_REASONS):
        return ""
    return f"{event.get('type')} {event.get('reason')}: {event.get('message')}"


def compare(left: JobObservation, right: JobObservation) -> dict[str, list[str]]:
    """Section → lines that only one of them has, prefixed with `- ` (left) or `+ ` (right); empty if a section is the same."""
    found = {}
    for section in JobObservation.__slots__:
        ours, theirs = getattr(left, section), getattr(right, section)
        found[section] = [
            *(f"- {line}" for line in ours if line not in theirs),
            *(f"+ {line}" for line in theirs if line not in ours),
        ]
    return found
