# /// verdict
# after = "listening"
# who = ["rank 1"]
# says = ["rank 1", "{here}", "{there}"]
# never = ["rank 0 keeps"]
# ///
"""Rank 1 waits for a connection of rank 0, which waits for a file that rank 1 would write afterwards. No framework."""
import os
import socket
import time

rank = int(os.environ["RANK"])
place = os.environ["SCRATCH"] + "/ready"
if rank == 1:
    server = socket.create_server(("", 4711))
    print("listening", flush=True)
    peer, _ = server.accept()  # here
    open(place, "w").close()
while not os.path.exists(place):
    time.sleep(0.5)  # there
