"""Images: what a name means on this node, `rowlock build` from a Dockerfile, the kubectl that MPIJobs get.

May import `pod`, `shim`. Begin with `images.py`.
"""
