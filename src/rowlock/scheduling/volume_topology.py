"""Where pods can run because of their volumes: on a real cluster a volume is often a disk of one node or of one zone.

As kube-scheduler has it: a pod goes to nodes that the `nodeAffinity` of each of its volumes allows, and waits while one of its claims
waits for a volume that is made without knowing the pod's node. A claim of a class with `WaitForFirstConsumer` waits for us, and
holds nobody up. What a class's `allowedTopologies` says is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rowlock.api import View
from rowlock.kinds import PERSISTENT_VOLUME_CLAIM, Kind
from rowlock.objects import Key, Object, dig
from rowlock.scheduling.model.pod_requests import parse_selector_terms
from rowlock.scheduling.model.snapshot import Shape, Task

PERSISTENT_VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", ("pv",), namespaced=False)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", ("sc",), namespaced=False)
VOLUME_KINDS: tuple[Kind, ...] = (PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS)


def claim_keys(pod: Object) -> tuple[Key, ...]:
    """The claims that a pod's volumes name, also those that are made for it."""
    namespace, found = str(dig(pod, "metadata.namespace") or ""), list[Key]()
    for volume in dig(pod, "spec.volumes") or ():
        if named := dig(volume, "persistentVolumeClaim.claimName"):
            found.append(Key(namespace, str(named)))
        elif "ephemeral" in volume:
            found.append(Key(namespace, f"{dig(pod, 'metadata.name')}-{volume.get('name')}"))
    return tuple(found)


@dataclass(slots=True)
class VolumeTopology:
    """Which pods use which claims, and what follows for where they can run."""

    _claims_of_pod: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    _pods_of_claim: dict[Key, set[Key]] = field(default_factory=dict)
    _claim_of_volume: dict[str, Key] = field(default_factory=dict)

    def note_pod(self, pod_key: Key, pod: Object | None) -> None:
        """A pod came, changed or (None) went. One that is bound asks for nothing any more."""
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

    def pods_concerned(self, kind: Kind, object_key: Key, obj: Object | None) -> Iterable[Key]:
        """The unbound pods for which a changed object of VOLUME_KINDS may matter."""
        if kind == STORAGE_CLASS:
            return tuple(self._claims_of_pod)
        claim: Key | None = object_key
        if kind == PERSISTENT_VOLUME:
            claim = self._claim_of_volume.pop(object_key.name, None)
            if obj is not None and (reference := dig(obj, "spec.claimRef")):
                claim = Key(str(reference.get("namespace") or ""), str(reference.get("name") or ""))
                self._claim_of_volume[object_key.name] = claim
        return tuple(self._pods_of_claim.get(claim, ())) if claim is not None else ()

    def with_volumes(self, view: View, pod_key: Key, task: Task) -> Task:
        """The task, with what its volumes ask for in its shape."""
        claims = self._claims_of_pod.get(pod_key, ())
        if not claims or task.shape.unsupported:
            return task
        terms, waits = [], ""
        for claim_key in claims:
            claim = view.get(PERSISTENT_VOLUME_CLAIM, claim_key.namespace, claim_key.name)
            if claim is None:
                continue  # it may be created later, and the kubelet waits for it
            volume_name = str(dig(claim, "spec.volumeName") or "")
            if not volume_name:
                waits = waits or _wait_message(view, claim_key.name, claim)
            elif (volume := view.get(PERSISTENT_VOLUME, "", volume_name)) is not None:
                terms.append(parse_selector_terms(dig(volume, "spec.nodeAffinity.required.nodeSelectorTerms") or ()))
        volumes = tuple(sorted({alternatives for alternatives in terms if alternatives}, key=str))
        shape: Shape = replace(task.shape, volumes=volumes, waits=waits)
        return task if shape == task.shape else replace(task, shape=shape)


def _wait_message(view: View, name: str, claim: Object) -> str:
    """Why a pod of this claim without a volume must wait; "" when its volume is made where the pod goes."""
    class_name = dig(claim, "spec.storageClassName")
    if class_name is None:
        return ""
    storage_class = view.get(STORAGE_CLASS, "", str(class_name)) if class_name else None
    if class_name and (storage_class is None or storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"):
        return ""
    return f"PersistentVolumeClaim {name} has no volume yet, and its storage class does not wait for a pod's node"
