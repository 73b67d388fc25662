"""Volume claims: which ones a pod mounts, when a deleted one may go, and the event of one that is not bound yet.

`ClaimProtection` is kube-controller-manager's pvc-protection controller. `FirstConsumerEvents` writes the one event of its persistent
volume controller that users see: a new claim is bound when a pod first uses it.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowlock import objects
from rowlock.api import (
    NOTHING,
    Change,
    Decision,
    Record,
    View,
)
from rowlock.errors import forbidden
from rowlock.kinds import EVENT, PERSISTENT_VOLUME_CLAIM, POD, Kind
from rowlock.objects import Key, Object
from rowlock.quantity import parse
from rowlock.system.finalizers import finalizers_of, patch_metadata, remove_finalizer

PVC_PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"
"""The finalizer that admission gives every claim."""


def claims_of(pod: Object) -> set[str]:
    """The names of the claims that a pod mounts."""
    volumes = objects.dig(pod, "spec.volumes", ())
    return {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}


class ClaimProtection:
    """One key per claim. Removes the finalizer of a deleted claim when no bound, unfinished pod mounts it, and restores the finalizer of a
    claim that is not being deleted."""

    name = "pvc-protection-controller"
    kinds: tuple[Kind, ...] = (PERSISTENT_VOLUME_CLAIM, POD)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is PERSISTENT_VOLUME_CLAIM:
            claim = change.object
            return (
                [objects.key(claim)]
                if objects.is_deleting(claim) != (PVC_PROTECTION_FINALIZER not in finalizers_of(claim))
                else []
            )
        if change.type != "Deleted" and objects.phase(change.object) not in objects.FINAL_PHASES:
            return []
        namespace = objects.namespace(change.object)
        return [Key(namespace, name) for name in claims_of(change.object)]

    def decide(self, view: View, key: Key, now: float) -> Decision:
        claim = view.get(PERSISTENT_VOLUME_CLAIM, *key)
        if claim is None or objects.is_deleting(claim) == (PVC_PROTECTION_FINALIZER not in finalizers_of(claim)):
            return NOTHING
        if not objects.is_deleting(claim):
            metadata = {"finalizers": [*finalizers_of(claim), PVC_PROTECTION_FINALIZER]}
            return Decision((patch_metadata(PERSISTENT_VOLUME_CLAIM, claim, metadata),))
        mounting_pods = (pod for pod in view.all(POD, key.namespace) if key.name in claims_of(pod))
        if any(
            objects.dig(pod, "spec.nodeName") and objects.phase(pod) not in objects.FINAL_PHASES
            for pod in mounting_pods
        ):
            return NOTHING
        return Decision((remove_finalizer(PERSISTENT_VOLUME_CLAIM, claim, PVC_PROTECTION_FINALIZER),))


class FirstConsumerEvents:
    """One key per claim. It looks for an earlier event of the claim in the cluster's Events, so that a restart does not repeat it."""

    name = "persistentvolume-controller"
    kinds: tuple[Kind, ...] = (PERSISTENT_VOLUME_CLAIM,)

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        return (objects.key(change.object),) if change.type == "Added" else ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        claim = view.get(PERSISTENT_VOLUME_CLAIM, *key)
        if claim is None or objects.is_deleting(claim) or objects.phase(claim) != "Pending":
            return NOTHING
        reported_uids = (objects.dig(event, "involvedObject.uid") for event in view.all(EVENT, key.namespace))
        if objects.uid(claim) in reported_uids:
            return NOTHING
        text = "waiting for first consumer to be created before binding"
        return Decision((Record(claim, "Normal", "WaitForFirstConsumer", text, self.name),))


def add_protection_finalizer(claim: Object) -> Object:
    """The claim with the finalizer that keeps it while pods use it; `ClaimProtection` removes it."""
    own = objects.meta(claim).get("finalizers") or []
    if PVC_PROTECTION_FINALIZER in own:
        return claim
    return objects.with_field(claim, "metadata.finalizers", [*own, PVC_PROTECTION_FINALIZER])


def check_not_resized(old: Object, new: Object) -> None:
    """Raises Forbidden if the claim's request grows: no storage class here allows expansion."""
    before, after = (parse(objects.dig(claim, "spec.resources.requests.storage", "0")) for claim in (old, new))
    if after > before:
        why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        raise forbidden(PERSISTENT_VOLUME_CLAIM.plural, objects.name(new), why)
