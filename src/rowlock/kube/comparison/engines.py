"""What `rowlock diff-engines` does: run the same job on two clusters at once, and compare.

In each cluster it creates a namespace of the same name, and deletes it at the end. Both are accessed through `Kube`, since the embedded
cluster has the same API. What a cluster made of a job is compared without what differs from run to run: generated names, times, uids.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rowlock import kinds
from rowlock.errors import ApiError, BadRequest
from rowlock.kube.client import Kube
from rowlock.kube.rate_limit import Limits
from rowlock.objects import Object, dig, is_condition_true, labels, name
from rowlock.objects import annotations as annotations_of

_POLL_S = 0.25
_LIMITS = Limits(qps=0, max_tries=2)


def read_job(path: Path) -> Object:
    """The only job in a YAML file. Raises BadRequest."""
    try:
        found = [obj for obj in yaml.safe_load_all(path.read_text()) if obj]
    except (OSError, yaml.YAMLError) as error:
        raise BadRequest(f"{path} cannot be read as YAML: {error}") from error
    jobs = [obj for obj in found if isinstance(obj, dict) and _kind_of(obj) is not None]
    if len(jobs) != 1:
        wanted = ", ".join(kind.name for kind in kinds.JOBS)
        raise BadRequest(f"{path} holds {len(jobs)} jobs of kubeflow.org/v1 ({wanted}): name a file with one")
    job: Object = jobs[0]
    if not name(job):
        raise BadRequest(f"the job in {path} has no metadata.name")
    return job


def _kind_of(obj: Object) -> kinds.Kind | None:
    found = kinds.by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    return found if found in kinds.JOBS else None


async def run_job(kube: Kube, job: Object, namespace: str, wait: float) -> JobObservation:
    """Run the job in a new namespace and observe it when it has ended, or after `wait` seconds. Raises ApiError."""
    kind = _kind_of(job)
    assert kind is not None
    await kube.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    try:
        meta = {key: value for key, value in job["metadata"].items() if key in ("name", "labels", "annotations")}
        await kube.create(kind, {**job, "metadata": {**meta, "namespace": namespace}})
        current = job
        for _ in range(max(1, int(wait / _POLL_S))):
            await asyncio.sleep(_POLL_S)
            current = await kube.get(kind, namespace, name(job))
            if is_condition_true(current, "Succeeded") or is_condition_true(current, "Failed"):
                break
        pods, events = await asyncio.gather(kube.list(kinds.POD, namespace), kube.list(kinds.EVENT, namespace))
        return observe_job(current, pods.items, events.items)
    finally:
        await kube.delete(kinds.NAMESPACE, "", namespace)


async def compare_engines(
    manifest: Path,
    embedded_kubeconfig: Path,
    kubeconfig: Path,
    *,
    context: str,
    wait: float,
    log: Callable[[str], None],
) -> dict[str, list[str]]:
    """Section → lines that differ between the clusters (see `compare`); `log` gets what was compared. Raises ApiError, ValueError, KeyError, OSError."""
    job, namespace = read_job(manifest), f"rowlock-diff-{secrets.token_hex(3)}"
    async with (
        Kube.connect(embedded_kubeconfig, limits=_LIMITS) as embedded,
        Kube.connect(kubeconfig, context or None, limits=_LIMITS) as real,
    ):
        results = await asyncio.gather(
            *(run_job(kube, job, namespace, wait) for kube in (embedded, real)), return_exceptions=True
        )
    for result, where in zip(results, ("the embedded cluster", "the real cluster"), strict=True):
        if isinstance(result, ApiError):
            raise type(result)(f"{where} does not take the job: {result.message}") from result
        if isinstance(result, BaseException):
            raise result
    left, right = results
    assert isinstance(left, JobObservation) and isinstance(right, JobObservation)
    log(f"{len(left.environment)} variables, {len(left.conditions)} conditions, {len(left.events)} events of the job")
    return compare(left, right)


def print_differences(
    manifest: str, embedded: str, kubeconfig: str, *, context: str, wait: float, as_json: bool = False
) -> int:
    """Print the differences, as text or as an object of `compare`'s sections. Exit code as of diff: 0 = the same, 1 = different, 2 = not comparable. `embedded`: path of a kubeconfig."""
    clusters = Path(embedded), Path(kubeconfig)
    log = partial(print, file=sys.stderr if as_json else sys.stdout)
    try:
        differences = asyncio.run(compare_engines(Path(manifest), *clusters, context=context, wait=wait, log=log))
    except ApiError as error:
        print(error.message, file=sys.stderr)
        return 2
    except (ValueError, KeyError, OSError) as error:
        print(f"a kubeconfig cannot be used: {error}", file=sys.stderr)
        return 2
    if as_json:
        print(json.dumps(differences, indent=2))
        return 1 if any(differences.values()) else 0
    for section, lines in differences.items():
        print(f"{section}: {'the same' if not lines else ''}".rstrip())
        for line in lines:
            print(f"  {line}")
    if any(differences.values()):
        print("- only the embedded cluster, + only the real one")
    return 1 if any(differences.values()) else 0


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
