# /// verdict
# after = "connected"
# everyone = true
# seconds = 12
# who = ["rank 1"]
# says = ["{first}", "{second}"]
# ///
"""No framework: rank 0 waits for a line of rank 1, and rank 1 for a datagram that nobody sends."""
import os
import socket
import time
from pathlib import Path

place = Path(os.environ["SCRATCH"])
if os.environ["RANK"] == "0":
    server = socket.create_server(("", 0))
    (place / "part").write_text(str(server.getsockname()[1]))
    (place / "part").rename(place / "port")
    peer, _ = server.accept()
    print("connected", flush=True)
    peer.recv(10)  # first
else:
    while not (place / "port").exists():
        time.sleep(0.1)
    peer = socket.create_connection((os.environ["MASTER_ADDR"], int((place / "port").read_text())))
    inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    inbox.bind(("127.0.0.1", 0))
    print("connected", flush=True)
    peer.sendall(inbox.recv(10))  # second
