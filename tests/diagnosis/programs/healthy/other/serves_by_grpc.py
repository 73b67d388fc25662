# /// verdict
# needs = ["grpc"]
# start = "PyTorchJob"
# after = "batch 1"
# ///
"""Rank 0 serves batches by gRPC and is silent; rank 1 asks for one in each second, until it tells rank 0 to end."""
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

if os.environ["RANK"] == "0":
    over = threading.Event()
    calls = {"Batch": lambda request, context: request, "Over": lambda request, context: over.set() or b"over"}
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Data", handlers),))
    server.add_insecure_port(f"0.0.0.0:{os.environ['MASTER_PORT']}")
    server.start()
    over.wait()
    server.stop(5).wait()
else:
    with grpc.insecure_channel(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}") as channel:
        grpc.channel_ready_future(channel).result(timeout=100)
        for step in range(20):
            channel.unary_unary("/Data/Batch")(bytes(1 << 16))
            print("batch", step, flush=True)
            time.sleep(1)
        channel.unary_unary("/Data/Over")(b"")
