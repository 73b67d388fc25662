"""Deciding: Kubeflow's v1 jobs become pods, services, pod groups, conditions and events. Pure; knows jobs, not nodes."""
