"""The file system as a container sees it: its root, its volumes, the pod's memory; and the system calls behind them.

May import `files`; standard library only, because shims are made of it. Begin with `volume_mounts.py`.
"""
