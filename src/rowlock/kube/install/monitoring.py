"""The objects by which Prometheus finds the server's `/metrics`: `rowlock manifests --service-monitor`, `metrics.serviceMonitor` in the chart.

A ServiceMonitor is a kind of the Prometheus operator, so it is only for clusters that have that one.
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
    """Prometheus sends the token of its own service account. The server's certificate is of an authority of its own, which Prometheus
    does not know, so it is not checked; the network policy is what keeps others away."""
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
