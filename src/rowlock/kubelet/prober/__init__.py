"""Probes and lifecycle hooks: when a container is asked, how (exec, HTTP, TCP, gRPC), and what follows.

May import `pod`, `streams`. Begin with `prober.py`.
"""
