"""Rules of ephemeral containers, which `kubectl debug` adds to a running pod. Pure.

They are for debugging only, so they have no ports, probes, hooks or resources. Existing ones cannot
be changed or removed.
"""

from __future__ import annotations

from typing import Any

from rowlock.apiserver.validation.pods import MAX_SHOWN_CHANGES, field_differences
from rowlock.apiserver.validation.rules import Scope, check_struct, rule
from rowlock.documents.field_errors import Causes, duplicate_value, forbidden_field, not_found
from rowlock.errors import Cause
from rowlock.objects import Object


@rule
def ephemeral_container(container: dict[str, Any], scope: Scope) -> Causes:
    """Check one ephemeral container; `scope` is the pod's spec."""
    yield from check_struct("Container", container, scope)
    if "other containers" not in scope.notes:
        scope.notes["other containers"] = _other_names(scope.struct)
    others: set[str] = scope.notes["other containers"]
    name, target = container.get("name") or "", container.get("targetContainerName") or ""
    if name in others or scope.is_repeated("ephemeral containers", name):
        yield duplicate_value(".name", name)
    if target and target not in others:
        yield not_found(".targetContainerName", target)
    yield from check_struct("Container ephemeral", container, scope)


def _other_names(spec: dict[str, Any]) -> set[str]:
    """The names of the containers that are not ephemeral."""
    return {c.get("name") or "" for field in ("containers", "initContainers") for c in spec.get(field) or ()}


def ephemeral_update_causes(old: Object, new: Object) -> list[Cause]:
    """Causes for changed or removed existing containers in an update of the subresource `ephemeralcontainers`."""
    before, after = ((pod.get("spec") or {}).get("ephemeralContainers") or () for pod in (old, new))
    kept = {container.get("name"): container for container in after}
    field, causes = "spec.ephemeralContainers", []
    for container in before:
        name = container["name"]
        if name not in kept:
            causes.append(forbidden_field(field, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif kept[name] != container:
            text = f'existing ephemeral containers "{name}" may not be changed'
            shown = list(field_differences(container, kept[name], f'{field}["{name}"]'))[:MAX_SHOWN_CHANGES]
            causes.append(forbidden_field(field, "\n".join((text, *shown))))
    return causes
