"""Doing: a real Kubernetes cluster behind the same nine verbs. Implements `Api`."""
