"""Doing: one machine as a whole cluster: store, API server, kubelet, pod network. Implements `Api`."""
