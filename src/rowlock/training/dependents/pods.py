"""A rank → its Pod: the template with the job's labels, owner, environment and restart policy."""

from __future__ import annotations

from rowlock.objects import Object, owner_reference
from rowlock.training.model import ROLE_LABEL, Env, Rank

_ENTRIES_PER_LOOK = 500_000
_ENTRIES_OF_CONTAINER = 10
"""A container is built anew for each pod, so it costs as much as so many entries of a list that is copied."""


def pods_per_look(template: Object) -> int:
    """How many pods of a template one reconcile may create, at least one; the next one continues, woken by those that were created. Each
    pod is a copy of the template's lists: a thousand copies of 14,000 variables take 0.3 s of the event loop."""
    spec, metadata = template.get("spec") or {}, template.get("metadata") or {}
    copied = [metadata.get("labels"), metadata.get("annotations"), spec.get("volumes")]
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    for container in containers:
        copied += [container, container.get("env"), container.get("volumeMounts")]
    entries = 1 + _ENTRIES_OF_CONTAINER * len(containers) + sum(len(each or ()) for each in copied)
    return max(1, _ENTRIES_PER_LOOK // entries)


def pod_of(rank: Rank) -> Object:
    """The Pod of a rank, for frameworks without pods of their own form."""
    framework = rank.job.framework
    template = rank.replica.template
    spec = dict(template.get("spec") or {})
    container_name = "" if framework.env_in_all else framework.container
    spec["containers"] = with_env(spec.get("containers") or [], framework.environment(rank), container_name)
    init_containers = framework.init_containers(rank)
    if init_containers:
        spec["initContainers"] = [*(spec.get("initContainers") or ()), *init_containers]
    spec["restartPolicy"] = rank.replica.pod_restart_policy
    labels = {**rank.labels, **({ROLE_LABEL: "master"} if framework.is_master(rank) else {})}
    return build_pod(rank, rank.name, labels, spec)


def build_pod(rank: Rank, name: str, labels: dict[str, str], spec: Object) -> Object:
    """A Pod with the metadata common to all pods of a job. The template's labels are kept; ours take precedence."""
    job, template_metadata = rank.job, rank.replica.template.get("metadata") or {}
    metadata: Object = {
        "name": name,
        "namespace": job.namespace,
        "labels": {**(template_metadata.get("labels") or {}), **labels},
    }
    metadata |= {key: template_metadata[key] for key in job.framework.copied_metadata if template_metadata.get(key)}
    metadata["ownerReferences"] = [owner_reference(job.object)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def with_env(containers: list[Object], env: Env, container_name: str = "") -> list[Object]:
    """The containers with `env` appended, so that it overrides the user's; with `container_name` only the first of that name."""
    if not env:
        return containers
    indexes = (
        {next((i for i, c in enumerate(containers) if c.get("name") == container_name), -1)} if container_name else None
    )
    return [
        {**c, "env": [*(c.get("env") or ()), *env]} if indexes is None or i in indexes else c
        for i, c in enumerate(containers)
    ]
