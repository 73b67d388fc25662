# /// verdict
# after = "record 1"
# ///
"""Rank 1 gets a record a second from rank 0 over a plain socket."""
import os
import socket
import time

rank, address = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    peer, _ = socket.create_server(("", address[1])).accept()
    for number in range(15):
        time.sleep(1)
        peer.sendall(b"x" * 64 + b"\n")
        print("record", number, flush=True)
    peer.close()
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.2)
    while peer.recv(100):
        pass
