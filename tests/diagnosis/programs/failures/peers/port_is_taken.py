# /// verdict
# needs = ["torch"]
# who = ["rank 0"]
# says = ["rank 0", ["address already in use", "Address already in use", "EADDRINUSE"]]
# ///
"""A server of rank 0's own listens on the port of the master."""
import os
import socket

import torch.distributed as dist

if os.environ["RANK"] == "0":
    board = socket.create_server(("", int(os.environ["MASTER_PORT"])))
dist.init_process_group("gloo")
