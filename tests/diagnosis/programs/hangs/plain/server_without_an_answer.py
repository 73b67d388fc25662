# /// verdict
# needs = ["torch"]
# after = "fetching"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 asks a server that accepts and never answers; rank 0 waits in a barrier."""
import socket
import urllib.request

import torch.distributed as dist

dist.init_process_group("gloo")
print("fetching", flush=True)
if dist.get_rank() == 1:
    server = socket.create_server(("127.0.0.1", 0))
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open("http://127.0.0.1:%d" % server.getsockname()[1])  # here
dist.barrier()
