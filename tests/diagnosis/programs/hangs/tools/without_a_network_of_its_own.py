# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# after = "up"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "never connected"]
# pod = { hostNetwork = true }
# ///
"""Pods in the machine's network, whose bytes are not the job's: a thread of rank 1 talks to somebody else all the time."""
import socket
import threading
import time

import torch
import torch.distributed as dist


def chat():
    server = socket.create_server(("127.0.0.1", 0))
    near, (far, _) = socket.create_connection(server.getsockname()), server.accept()
    while True:
        near.send(b"x" * 100)
        far.recv(100)
        time.sleep(1)


dist.init_process_group("gloo")
dist.barrier()
print("up", flush=True)
if dist.get_rank() == 1:
    threading.Thread(target=chat, daemon=True).start()
    threading.Event().wait()  # here
dist.all_reduce(torch.ones(1))
