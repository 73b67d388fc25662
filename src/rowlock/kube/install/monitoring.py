"""The objects by which Prometheus finds the server's `/metrics`: `rowlock manifests --service-monitor`, `metrics.serviceMonitor` in the chart.

A ServiceMonitor is a kind of the Prometheus operator, so it needs that operator.
"""

from __future__ import annotations

from typing import Any

from rowlock import kinds
from rowlock.kube.install.server_objects import NAME, SERVICE_LABELS
from rowlock.kube.rights import SYSTEM_NAMESPACE
from rowlock.objects import Object

ROLE = "rowlock-metrics"
MONITOR_API_VERSION = "monitoring.coreos.com/v1"


def monitoring_objects() -> list[Object]:
    """The ServiceMonitor, and the role that lets its bearer read `/metrics`: bind it to the service account of Prometheus."""
    return [metrics_role(), service_monitor()]


def metrics_role() -> Object:
    """The right to read `/metrics`, and nothing else; Prometheus' own manifests often have it."""
    return {
        "apiVersion": kinds.CLUSTER_ROLE.api_version,
        "kind": kinds.CLUSTER_ROLE.name,
        "metadata": {"name": ROLE},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }


def service_monitor() -> Object:
    """Prometheus sends its own service account's token. It does not verify the server's certificate, whose CA it does not know; the network
    policy protects the connection."""
    endpoint: dict[str, Any] = {
        "port": "https",
        "scheme": "https",
        "path": "/metrics",
        "interval": "30s",
        "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "tlsConfig": {"insecureSkipVerify": True},
    }
    return {
        "apiVersion": MONITOR_API_VERSION,
        "kind": "ServiceMonitor",
        "metadata": {"name": NAME, "namespace": SYSTEM_NAMESPACE},
        "spec": {"selector": {"matchLabels": dict(SERVICE_LABELS)}, "endpoints": [endpoint]},
    }
