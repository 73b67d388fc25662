"""exec, attach and port-forward: websockets as Kubernetes speaks them, and SPDY/3.1 for older clients.

May import `http`. The pods' side is in `kubelet/streams`. Begin with `pod_streams.py`, then `websockets.py`.
"""
