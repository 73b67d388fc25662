"""The Kubernetes API of a real cluster at our address: reads, and the streams of exec, attach and port-forward.

May import: the rest of `kube`. Begin with `api_proxy.py`, which decides what is passed on; `websocket_relay.py` carries the streams.
"""
