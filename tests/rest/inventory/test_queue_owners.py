"""A queue belongs to the namespaces whose projects have it, so that the cluster deletes it with the last of them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from rowlock import kinds
from rowlock.api import Api
from rowlock.errors import Conflict
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.rest.inventory.queue_owners import QueueOwners, owners_patch
from rowlock.workloads.projects import project_of


def namespace(name: str, uid: str = "1", queue: str = "a") -> Object:
    return {"metadata": {"name": name, "uid": uid, "labels": {"runai/queue": queue}}}


def owner(name: str, uid: str = "1") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid}


def queue(*owners: dict[str, Any], labels: dict[str, str] | None = None) -> Object:
    own = {"rowlock.dev/project": "a"} if labels is None else labels
    return {"metadata": {"name": "a", "resourceVersion": "7", "labels": own, "ownerReferences": list(owners)}}


def wanted(*owners: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": list(owners), "resourceVersion": "7"}}


def test_the_namespaces_that_have_it_own_it() -> None:
    both = [namespace("runai-b", "2"), namespace("runai-a")]
    assert owners_patch(queue(), both) == wanted(owner("runai-a"), owner("runai-b", "2"))
    assert owners_patch(queue(owner("runai-a"), owner("runai-b", "2")), both) is None
    helm = {"apiVersion": "v1", "kind": "ConfigMap", "name": "release", "uid": "u9"}
    assert owners_patch(queue(helm), both[1:]) == wanted(helm, owner("runai-a"))


def test_a_namespace_of_the_same_name_takes_the_place_of_one_that_has_gone() -> None:
    assert owners_patch(queue(owner("runai-a", "old")), [namespace("runai-a", "new")]) == wanted(
        owner("runai-a", "new")
    )


def test_queues_of_others_and_those_without_a_project_are_left_alone() -> None:
    assert owners_patch(queue(labels={}), [namespace("runai-a")]) is None
    assert owners_patch(queue(owner("runai-a")), []) is None


class Played:
    """The cache, and the API, which refuses the first write."""

    def __init__(self) -> None:
        self.queue, self.space, self.refused, self.written = queue(), namespace("runai-a"), 0, list[Any]()

    def projects(self) -> dict[str, Any]:
        return {"runai-a": project_of(self.space, self.queue)}

    def namespace(self, name: str) -> Object:
        return self.space

    def queues(self) -> list[Object]:
        return [self.queue]

    async def patch(self, kind: Any, namespace: str, name: str, patch: Any, **_: Any) -> None:
        assert (kind, namespace, name) == (kinds.QUEUE, "", "a")
        if not self.refused:
            self.refused += 1
            raise Conflict("somebody else has written it")
        self.written.append(patch)
        self.queue = queue(*patch["metadata"]["ownerReferences"])


def test_a_refused_write_is_tried_again_and_a_done_one_is_not() -> None:
    played = Played()
    owners = QueueOwners(cast(Api, played), cast(InformerCache, played))
    for _ in range(3):
        asyncio.run(owners.look())
    assert played.written == [wanted(owner("runai-a"))]
