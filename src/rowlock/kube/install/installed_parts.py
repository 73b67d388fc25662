"""Checks of `rowlock doctor` for parts that others have installed: KAI's version, and webhooks whose servers are down. Read-only.

Each check returns (state: ok, warn or bad; what was found; the fix).
"""

from __future__ import annotations

import re
from typing import Any

from rowlock.api import Api
from rowlock.errors import NotFound
from rowlock.kinds import SERVICE, Kind
from rowlock.objects import Object, dig, labels, name

Answer = tuple[str, str, str]
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", ("deploy",))
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
WEBHOOK_CONFIGURATIONS = tuple(
    Kind("admissionregistration.k8s.io", "v1", f"{word}WebhookConfiguration", f"{word.lower()}webhookconfigurations", (), False)
    for word in ("Mutating", "Validating")
)  # fmt: skip
SAFE_KAI = (0, 15)
"""The first KAI release without a known panic: 0.14 panics when an elastic job above its minimum waits while another queue reclaims."""
_OURS = frozenset({"", "kubeflow.org", "scheduling.run.ai", "*"})
"""API groups of the objects that rowlock and the operators write; the core group for pods."""
_OUR_RESOURCES = frozenset({"pods", "*", "*/*", "pods/*"})
_TAG = re.compile(r":v?(\d+)\.(\d+)(?:\.\d+)?")


async def ask_kai_version(api: Api) -> Answer:
    """Check KAI's version by the image tags of its scheduler."""
    images = [
        str(container.get("image"))
        for deployment in (await api.list(DEPLOYMENT)).items
        for container in dig(deployment, "spec.template.spec.containers") or ()
        if "kai" in f"{labels(deployment)} {container.get('image')}".lower() and "scheduler" in name(deployment)
    ]
    if not images:
        return "ok", "not installed, or not as a Deployment", ""
    versions = [(int(found[1]), int(found[2])) for image in images if (found := _TAG.search(image))]
    if not versions:
        fix = "releases up to 0.14 panic on elastic jobs (KAI issue 1664): look which one it is"
        return "warn", f"{images[0]} names no version", fix
    oldest = min(versions)
    shown = f"KAI {oldest[0]}.{oldest[1]}"
    if oldest < SAFE_KAI:
        fix = (
            "its scheduler panics on elastic jobs (KAI issue 1664): `helm upgrade kai-scheduler"
            " oci://ghcr.io/kai-scheduler/kai-scheduler/kai-scheduler -n kai-scheduler` with 0.15 or later, or submit no jobs with"
            " minReplicas below their size"
        )
        return "warn", shown, fix
    return "ok", shown, ""


async def ask_webhooks(api: Api) -> Answer:
    """Find mandatory webhooks for pods or jobs without a running server: the cluster refuses all such objects meanwhile."""
    down: list[str] = []
    seen: set[tuple[str, str]] = set()
    count = 0
    for kind in WEBHOOK_CONFIGURATIONS:
        for configuration in (await api.list(kind)).items:
            for webhook in configuration.get("webhooks") or ():
                service = dig(webhook, "clientConfig.service") or {}
                if webhook.get("failurePolicy") == "Ignore" or not service or not _concerns_us(webhook):
                    continue
                count += 1
                target = (str(service.get("namespace")), str(service.get("name")))
                if target in seen or await _has_server(api, *target):
                    continue
                seen.add(target)
                down.append(f"{webhook.get('name')} ({'/'.join(target)})")
    if down:
        fix = (
            "the API server refuses pods or jobs until they are up: `kubectl get pods -n NAMESPACE` says why they are not; where"
            " the program was removed, delete its webhook configuration"
        )
        return "bad", f"no server answers for {', '.join(down[:5])}", fix
    return "ok", f"{count} of others look at pods or jobs, and have servers", ""


def _concerns_us(webhook: dict[str, Any]) -> bool:
    for rule in webhook.get("rules") or ():
        groups, resources = set(rule.get("apiGroups") or ()), set(rule.get("resources") or ())
        is_core_only = groups & _OURS == {""}
        if groups & _OURS and (not is_core_only or resources & _OUR_RESOURCES):
            return True
    return False


async def _has_server(api: Api, namespace: str, service: str) -> bool:
    """Whether the service has a ready endpoint. One of type ExternalName counts, because its server is elsewhere."""
    try:
        found: Object = await api.get(SERVICE, namespace, service)
    except NotFound:
        return False
    if dig(found, "spec.type") == "ExternalName" or not dig(found, "spec.selector"):
        return True
    for endpoint_slice in (await api.list(ENDPOINT_SLICE, namespace)).items:
        if labels(endpoint_slice).get("kubernetes.io/service-name") != service:
            continue
        for endpoint in endpoint_slice.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready", True):
                return True
    return False
