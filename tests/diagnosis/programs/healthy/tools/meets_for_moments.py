# /// verdict
# start = "PyTorchJob"
# needs = ["torch"]
# after = "step 1"
# pod = { hostNetwork = true }
# ///
"""Ranks that exchange their sums over a new connection in each round, for a millisecond: hardly a look sees one. (Where the kernel makes no
networks, only connections that have just been closed show it.)"""
import os
import socket
import time

import torch

rank, port, total = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"]), torch.zeros(4)
server = socket.create_server(("", port)) if rank == 0 else None
for step in range(24):
    end = time.monotonic() + 1
    while time.monotonic() < end:
        total += torch.randn(4)
    if server:
        peer, _ = server.accept()
        with peer:
            peer.recv(64)
    else:
        for _ in range(50):
            try:
                with socket.create_connection((os.environ["MASTER_ADDR"], port)) as peer:
                    peer.sendall(total.numpy().tobytes())
                break
            except OSError:
                time.sleep(0.5)
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
