"""Probes and lifecycle hooks: when a container is asked, how (exec, HTTP, TCP, gRPC), and what follows.

May import `pod`, `network`, `runtime`, `streams`. Begin with `prober.py`.
"""
