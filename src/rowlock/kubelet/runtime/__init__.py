"""The container engine (Docker, Podman): which pods it runs, what it is asked for, image pulls and registries.

May import `pod`, `images`, `shim`. Begin with `container_runtime.py`.
"""
