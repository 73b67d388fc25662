# /// verdict
# needs = ["torch"]
# who = ["rank 0"]
# says = ["rank 0", "ConnectionRefusedError", "{here}"]
# never = ["the logs do not say why"]
# ///
"""Rank 0 cannot reach its tracking server: words of a lost peer, but it is the cause. Rank 1 loses rank 0."""
import socket

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    socket.create_connection(("127.0.0.1", 9))  # here
dist.all_reduce(torch.ones(1))
