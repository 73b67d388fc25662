"""Which pods will end without a further request: terminating pods, and those that the garbage collector is about to delete.

A job of a thousand pods that is deleted is gone at once, and its pods are deleted one after the other. A server that is stopped meanwhile
would leave the others behind, and their owner is no longer there to be stopped. So `rowlock down` waits for these pods.
"""

from __future__ import annotations

from rowlock import objects
from rowlock.api import ObservedView, View
from rowlock.kinds import NAMESPACE, POD
from rowlock.objects import FINAL_PHASES, Object
from rowlock.system.garbage_collector import ORPHAN, deletion_policy, owner_of, reference_key, references_of


def ending_pods(view: ObservedView) -> list[Object]:
    """Pods on nodes that are terminating, or will be because their owners or their namespace go; ordered by namespace and name. A pod
    that has ended is none of them, nor is one that an owner of an unknown kind holds."""
    search = _Search(view)
    return [
        pod
        for pod in view.all_unfinished(POD)
        if objects.dig(pod, "spec.nodeName")
        and objects.phase(pod) not in FINAL_PHASES
        and (objects.is_deleting(pod) or search.will_be_deleted(pod))
    ]


class _Search:
    """Follows owners upwards (pod, Job, JobSet, TrainJob). Each owner is looked at once: a thousand pods may have the same one."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._namespaces: dict[str, bool] = {}
        self._owners: dict[tuple[str, str], bool] = {}

    def will_be_deleted(self, obj: Object) -> bool:
        """Whether its namespace is being deleted, or all its owners are gone or will go and take it with them."""
        space = objects.namespace(obj)
        if space not in self._namespaces:
            found = self._view.get(NAMESPACE, "", space) if space else None
            self._namespaces[space] = found is not None and objects.is_deleting(found)
        references = references_of(obj)
        return self._namespaces[space] or (
            bool(references) and all(self._will_owner_go(space, obj, reference) for reference in references)
        )

    def _will_owner_go(self, space: str, obj: Object, reference: dict[str, object]) -> bool:
        key = reference_key(obj, reference)
        if key is None:
            return False  # of a kind that this cluster does not store: the pod lives on
        memo = (key.namespace, key.name)
        if memo not in self._owners:
            self._owners[memo] = False  # owners in a circle keep each other
            owner = owner_of(self._view, key)
            if owner is None:
                self._owners[memo] = True
            elif objects.is_deleting(owner):
                self._owners[memo] = deletion_policy(owner) != ORPHAN
            else:
                self._owners[memo] = self.will_be_deleted(owner)
        return self._owners[memo]
