"""All controllers of this room: those that only delete objects, and those that create or update them."""

from __future__ import annotations

from rowlock.api import Controller
from rowlock.system.event_expiry import EVENT_TTL, EventExpiry
from rowlock.system.garbage_collector import GarbageCollector
from rowlock.system.namespace_deletion import NamespaceDefaults, NamespaceDeleter
from rowlock.system.pod_garbage_collector import PodGarbageCollector
from rowlock.system.resource_quota import ResourceQuotaController
from rowlock.system.role_aggregation import RoleAggregation
from rowlock.system.taint_eviction import TaintEviction, UnschedulableTaint
from rowlock.system.volume_claims import ClaimProtection, FirstConsumerEvents


def deleting_controllers(event_ttl: float = EVENT_TTL) -> tuple[Controller, ...]:
    """The controllers that only delete: garbage, emptied namespaces, old Events (`event_ttl` in seconds), pods without a node, unused
    claims."""
    return (GarbageCollector(), NamespaceDeleter(), EventExpiry(event_ttl), PodGarbageCollector(), ClaimProtection())


def controllers(ca_certificate: str = "", event_ttl: float = EVENT_TTL) -> tuple[Controller, ...]:
    """All controllers. `ca_certificate` is the cluster's CA certificate (PEM); `event_ttl` is in seconds."""
    return (
        *deleting_controllers(event_ttl),
        TaintEviction(),
        NamespaceDefaults(ca_certificate),
        UnschedulableTaint(),
        FirstConsumerEvents(),
        ResourceQuotaController(),
        RoleAggregation(),
    )
