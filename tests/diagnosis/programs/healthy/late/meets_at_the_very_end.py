# /// verdict
# needs = ["torch"]
# ///
"""Both ranks compute apart for fifteen seconds; then one sends its sum to the other, and both end at once."""
import os
import socket
import time

import torch

rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
server = socket.create_server(("", port)) if rank == 0 else None
total, end = torch.zeros(4), time.monotonic() + 15 + rank
while time.monotonic() < end:
    total += torch.randn(4)
if server:
    peer, _ = server.accept()
    peer.recv(64)
else:
    with socket.create_connection((os.environ["MASTER_ADDR"], port)) as peer:
        peer.sendall(total.numpy().tobytes())
