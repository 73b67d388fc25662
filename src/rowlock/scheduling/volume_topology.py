"""Where pods can run because of their volumes: on a real cluster a volume is often a disk of one node or of one zone.

As in kube-scheduler's VolumeBinding: a pod is placed on nodes that the `nodeAffinity` of each of its volumes allows. It waits while one of
its claims does not exist, or has no volume yet with immediate binding. The volume of a claim with `WaitForFirstConsumer` is provisioned on
the node chosen for it, else within the class's `allowedTopologies`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rowlock.api import View
from rowlock.kinds import PERSISTENT_VOLUME_CLAIM, Kind
from rowlock.objects import Key, Object, dig, is_deleting
from rowlock.objects import annotations as annotations_of
from rowlock.scheduling.model.pod_requests import parse_selector_terms
from rowlock.scheduling.model.snapshot import Alternatives, Requirement, Shape, Task

PERSISTENT_VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", ("pv",), namespaced=False)
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", ("sc",), namespaced=False)
VOLUME_KINDS: tuple[Kind, ...] = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS)


def claim_keys(pod: Object) -> tuple[Key, ...]:
    """The claims of a pod's volumes, including those created for its ephemeral volumes."""
    namespace, found = str(dig(pod, "metadata.namespace") or ""), list[Key]()
    for volume in dig(pod, "spec.volumes") or ():
        if named := dig(volume, "persistentVolumeClaim.claimName"):
            found.append(Key(namespace, str(named)))
        elif "ephemeral" in volume:
            found.append(Key(namespace, f"{dig(pod, 'metadata.name')}-{volume.get('name')}"))
    return tuple(found)


@dataclass(slots=True)
class VolumeTopology:
    """Tracks which pods use which claims, and adds the resulting node requirements to tasks."""

    _claims_of_pod: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    _pods_of_claim: dict[Key, set[Key]] = field(default_factory=dict)
    _claim_of_volume: dict[str, Key] = field(default_factory=dict)

    def note_pod(self, pod_key: Key, pod: Object | None) -> None:
        """Note a created, changed or (None) deleted pod. A bound pod needs no tracking."""
        claims = () if pod is None or dig(pod, "spec.nodeName") else claim_keys(pod)
        known = self._claims_of_pod.pop(pod_key, ())
        for claim in known:
            if claim not in claims:
                self._pods_of_claim[claim].discard(pod_key)
                if not self._pods_of_claim[claim]:
                    del self._pods_of_claim[claim]
        if claims:
            self._claims_of_pod[pod_key] = claims
            for claim in claims:
                self._pods_of_claim.setdefault(claim, set()).add(pod_key)

    def pods_with_claims(self) -> Iterable[Key]:
        """The unbound pods that a change of a storage class may concern."""
        return self._claims_of_pod

    def pods_concerned(self, kind: Kind, object_key: Key, obj: Object | None) -> Iterable[Key]:
        """The unbound pods that a changed claim or volume may concern."""
        claim: Key | None = object_key
        if kind == PERSISTENT_VOLUME:
            claim = self._claim_of_volume.pop(object_key.name, None)
            if obj is not None and (reference := dig(obj, "spec.claimRef")):
                claim = Key(str(reference.get("namespace") or ""), str(reference.get("name") or ""))
                self._claim_of_volume[object_key.name] = claim
        return tuple(self._pods_of_claim.get(claim, ())) if claim is not None else ()

    def with_volumes(self, view: View, pod_key: Key, task: Task) -> Task:
        """The task with its volumes' node requirements in its shape."""
        claims = self._claims_of_pod.get(pod_key, ())
        if not claims or task.shape.unsupported:
            return task
        volumes, new_volumes, waits = list[Alternatives | None](), list[Alternatives | None](), ""
        for claim_key in claims:
            claim = view.get(PERSISTENT_VOLUME_CLAIM, claim_key.namespace, claim_key.name)
            storage_class = view.get(STORAGE_CLASS, "", str(dig(claim or {}, "spec.storageClassName") or ""))
            waits = waits or _wait_message(claim_key.name, claim, storage_class)
            if claim is None:
                continue
            volume_name = str(dig(claim, "spec.volumeName") or "")
            if not volume_name:
                new_volumes.append(_places_of_new_volume(claim, storage_class))
            elif (volume := view.get(PERSISTENT_VOLUME, "", volume_name)) is not None:
                terms = dig(volume, "spec.nodeAffinity.required.nodeSelectorTerms")
                volumes.append(parse_selector_terms(terms) if terms else None)
        shape: Shape = replace(
            task.shape, volumes=_each_once(volumes), new_volumes=_each_once(new_volumes), waits=waits
        )
        return task if shape == task.shape else replace(task, shape=shape)


def _each_once(places: Iterable[Alternatives | None]) -> tuple[Alternatives, ...]:
    """Without duplicates and sorted, so that pods with equal requirements have equal shapes. None (= everywhere) is dropped."""
    return tuple(sorted({alternatives for alternatives in places if alternatives is not None}, key=str))


def _wait_message(name: str, claim: Object | None, storage_class: Object | None) -> str:
    """Why a pod with this claim must wait; "" if its volume exists or will be provisioned for the pod's node."""
    if claim is None:
        return f"PersistentVolumeClaim {name} is not there yet"
    if is_deleting(claim):
        return f"PersistentVolumeClaim {name} is being deleted"
    class_name = dig(claim, "spec.storageClassName")
    if class_name is None or dig(claim, "spec.volumeName"):
        return ""
    if class_name and (storage_class is None or _waits_for_consumer(storage_class)):
        return ""
    return f"PersistentVolumeClaim {name} has no volume yet, and its storage class does not wait for a pod's node"


def _waits_for_consumer(storage_class: Object) -> bool:
    return storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


def _places_of_new_volume(claim: Object, storage_class: Object | None) -> Alternatives | None:
    """Where the volume of this claim can be provisioned; None = everywhere."""
    if storage_class is None or not _waits_for_consumer(storage_class):
        return None
    if node := annotations_of(claim).get(SELECTED_NODE_ANNOTATION):
        return ((Requirement("metadata.name", "In", (node,), True),),)
    if not (terms := storage_class.get("allowedTopologies")):
        return None
    topologies = (term.get("matchLabelExpressions") or () for term in terms)
    return tuple(
        tuple(Requirement(str(one.get("key")), "In", tuple(one.get("values") or ())) for one in expressions)
        for expressions in topologies
        if expressions  # a term without expressions selects no node
    )
