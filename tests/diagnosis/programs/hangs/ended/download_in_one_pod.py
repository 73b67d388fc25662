# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh -c 'test $RANK = 0 || { sleep 3; curl -sN http://$MASTER_ADDR:$MASTER_PORT/weights; }; exec python {program}'"
# after = "asks for"
# who = ["rank 1"]
# says = ["rank 1", "has not begun", "curl"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""The shell of rank 1 downloads from a server that accepts and never answers."""
import os
import socket

server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
peer, _ = server.accept()
print("somebody asks for", peer.recv(4096)[:20], flush=True)
peer.recv(100)
