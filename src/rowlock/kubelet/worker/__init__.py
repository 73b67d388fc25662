"""The kubelet at work: one pod worker per pod, start requests, environment, security context, image pulls.

May import every other room of the kubelet. Begin with `kubelet.py`, then `pod_worker.py` and `starting.py`.
"""
