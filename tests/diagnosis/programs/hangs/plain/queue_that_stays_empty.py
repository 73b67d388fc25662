# /// verdict
# after = "batch 2"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps"]
# short = true
# ///
"""Rank 1 waits for its own queue, into which nobody puts anything; rank 0 waits for rank 1 on a socket."""
import os
import queue
import socket
import time

rank, address = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
batches = queue.Queue()
if rank == 0:
    peer, _ = socket.create_server(("", address[1])).accept()
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.2)
for number in range(3):
    print("batch", number, flush=True)
if rank == 0:
    peer.recv(1)
batches.get()  # here
