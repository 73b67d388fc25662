"""Doing: one machine as a whole cluster: storage, Kubernetes API, node. Implements `Api`. The map: `docs/design/cluster.md`."""
