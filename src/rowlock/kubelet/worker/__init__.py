"""The kubelet at work: one pod worker per pod, start requests, environment, security context, the pod host's client.

May import every other room of the kubelet. Begin with `kubelet.py`, then `pod_worker.py` and `starting.py`.
"""
