"""What runs inside the processes of pods: the pod host, its fork server, one shim per container, the container's first steps.

Standard library only: each import here costs every pod memory (a test holds this). May import `files`, `warm` and nothing else of
rowlock. Begin with `pod_host.py`, then `shim.py` and `container_init.py`.
"""
