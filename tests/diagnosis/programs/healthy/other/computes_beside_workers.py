# /// verdict
# needs = ["torch"]
# ranks = 1
# after = "planning"
# ///
"""Two workers that are connected to each other have nothing to do while the program that started them plans, as those of Dask have."""
import hashlib
import multiprocessing
import socket
import time


def work(index, port):
    import torch  # as workers that will get tasks for it

    if index == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        port.put(listener.getsockname()[1])
        peer, _ = listener.accept()
    else:
        peer = socket.create_connection(("127.0.0.1", port.get()))
        port.put(0)
    time.sleep(600 if torch else 0)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    port = context.Queue()
    for index in range(2):
        context.Process(target=work, args=(index, port), daemon=True).start()
    while port.empty():
        time.sleep(0.1)
    time.sleep(1)
    print("planning", flush=True)
    value, end = b"", time.monotonic() + 20
    while time.monotonic() < end:
        value = hashlib.sha256(value).digest()
    print("planned", flush=True)
