"""One headless Service per rank, under the pod's name, by which ranks find each other."""

from __future__ import annotations

from rowlock.kinds import SERVICE
from rowlock.objects import Object, controller_of, is_deleting, owner_reference
from rowlock.training.dependents.replicas import group_by_index, slots
from rowlock.training.model import Rank, Replica
from rowlock.training.reconcile_context import ReconcileContext


def service_of(rank: Rank) -> Object:
    """The Service of a rank, with all ports of its main container, each name once."""
    ports: dict[str, Object] = {}
    for item in rank.job.main_container(rank.type).get("ports") or ():
        port_name = str(item.get("name") or "")
        ports[port_name] = {**({"name": port_name} if port_name else {}), "port": item.get("containerPort")}
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


def sync_services(context: ReconcileContext, replica: Replica, services: list[Object]) -> None:
    """Create missing Services, and delete those beyond the number of replicas."""
    services_by_index = group_by_index(services)
    for index in slots(services_by_index, replica, context.parity.no_phantoms):
        existing = services_by_index.get(index, [])
        if not existing:
            if index < replica.count or not context.parity.no_phantoms:
                context.create_owned(SERVICE, service_of(Rank(context.job, replica, index)))
        elif len(existing) == 1 and index >= replica.count:
            context.delete(SERVICE, existing[0])


def adopt_services(context: ReconcileContext) -> None:
    """Make the job the owner of Services with its labels and no controller (TFJob); their ports and selector stay unchanged."""
    for service in context.observed.services:
        if controller_of(service) is None and not is_deleting(service):
            owners = [*(service["metadata"].get("ownerReferences") or ()), owner_reference(context.job.object)]
            context.patch(SERVICE, service, {"metadata": {"ownerReferences": owners}})
