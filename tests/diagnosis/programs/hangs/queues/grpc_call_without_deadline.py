# /// verdict
# needs = ["grpc"]
# start = "PyTorchJob"
# after = "asks"
# who = ["rank 0"]
# says = ["rank 0", "rank 1", "{here}"]
# ///
"""Rank 1 asks rank 0's gRPC server for a batch, without a deadline; the server's handler waits for a lock that nobody gives back."""
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

lock = threading.Lock()
ADDRESS = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def batch(request, context):
    with lock:
        return b""


if os.environ["RANK"] == "0":
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.method_handlers_generic_handler("Data", {"Batch": grpc.unary_unary_rpc_method_handler(batch)})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"0.0.0.0:{os.environ['MASTER_PORT']}")
    server.start()
    lock.acquire()
    server.wait_for_termination()
with grpc.insecure_channel(ADDRESS) as channel:
    grpc.channel_ready_future(channel).result(timeout=60)
    print("asks", flush=True)
    channel.unary_unary("/Data/Batch")(b"")  # here
