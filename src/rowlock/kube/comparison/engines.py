"""What `rowlock diff-engines` does: run the same job on two clusters at once, and compare.

In each cluster it creates a namespace of the same name, and deletes it at the end. Both are accessed through `Kube`, since the embedded
cluster has the same API.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path

import yaml

from rowlock import kinds
from rowlock.errors import ApiError, BadRequest
from rowlock.kube.client import Kube
from rowlock.kube.comparison.job_observation import JobObservation, compare, observe_job
from rowlock.kube.rate_limit import Limits
from rowlock.objects import Object, is_condition_true, name

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
    manifest: Path, embedded_kubeconfig: Path, kubeconfig: Path, *, context: str, wait: float
) -> dict[str, list[str]]:
    """Section → lines that differ between the clusters (see `compare`). Raises ApiError, ValueError, KeyError, OSError."""
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
    print(f"{len(left.environment)} variables, {len(left.conditions)} conditions, {len(left.events)} events of the job")
    return compare(left, right)


def print_differences(manifest: str, embedded: str, kubeconfig: str, *, context: str, wait: float) -> int:
    """Print the differences. Exit code as of diff: 0 = the same, 1 = different, 2 = not comparable. `embedded`: path of a kubeconfig."""
    clusters = Path(embedded), Path(kubeconfig)
    try:
        differences = asyncio.run(compare_engines(Path(manifest), *clusters, context=context, wait=wait))
    except ApiError as error:
        print(error.message, file=sys.stderr)
        return 2
    except (ValueError, KeyError, OSError) as error:
        print(f"a kubeconfig cannot be used: {error}", file=sys.stderr)
        return 2
    for section, lines in differences.items():
        print(f"{section}: {'the same' if not lines else ''}".rstrip())
        for line in lines:
            print(f"  {line}")
    if any(differences.values()):
        print("- only the embedded cluster, + only the real one")
    return 1 if any(differences.values()) else 0
