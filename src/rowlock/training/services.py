"""One headless Service per rank, under the pod's name: that is how ranks find each other."""

from __future__ import annotations

from rowlock.kinds import SERVICE
from rowlock.objects import Object, controller_of, deleting, owner_reference
from rowlock.training.framework import Rank, Replica
from rowlock.training.replicas import size, slots
from rowlock.training.turn import Turn


def service_of(rank: Rank) -> Object:
    """The Service of a rank: all ports of its main container, names taken once."""
    ports: dict[str, Object] = {}
    for item in rank.job.main_container(rank.type).get("ports") or ():
        called = str(item.get("name") or "")
        ports[called] = {**({"name": called} if called else {}), "port": item.get("containerPort")}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": rank.name,
            "namespace": rank.job.namespace,
            "labels": rank.labels,
            "ownerReferences": [owner_reference(rank.job.object)],
        },
        "spec": {"clusterIP": "None", "selector": rank.labels, "ports": list(ports.values())},
    }


def sync_services(turn: Turn, replica: Replica, mine: list[Object]) -> None:
    """Make the missing ones, remove those beyond the number of replicas."""
    taken = slots(mine)
    for index in range(size(taken, replica, turn.parity.no_phantoms)):
        here = taken.get(index, [])
        if not here:
            if index < replica.count or not turn.parity.no_phantoms:
                turn.create_owned(SERVICE, service_of(Rank(turn.job, replica, index)))
        elif len(here) == 1 and index >= replica.count:
            turn.delete(SERVICE, here[0])


def adopt(turn: Turn) -> None:
    """Services with the job's labels and no owner become its own (TFJob); their ports and selector stay as they are."""
    for service in turn.seen.services:
        if controller_of(service) is None and not deleting(service):
            owners = [*(service["metadata"].get("ownerReferences") or ()), owner_reference(turn.job.object)]
            turn.patch(SERVICE, service, {"metadata": {"ownerReferences": owners}})
