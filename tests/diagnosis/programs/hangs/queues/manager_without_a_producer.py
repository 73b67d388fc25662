# /// verdict
# start = "PyTorchJob"
# after = "waits for episodes"
# who = ["rank 0"]
# says = ["rank 0", "rank 1", "{here}", "KeyError"]
# ///
"""Rank 0 serves a queue to rank 1; its thread that fills it has died of an error, and the queue stays empty."""
import os
import queue
import threading
import time
from multiprocessing.managers import BaseManager

episodes = queue.Queue()
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


class Manager(BaseManager):
    pass


def play():
    episodes.put({"reward": 1})
    time.sleep(1)
    episodes.put({}["reward"])


Manager.register("episodes", callable=lambda: episodes)
if os.environ["RANK"] == "0":
    server = Manager(("0.0.0.0", ADDRESS[1]), b"key").get_server()
    threading.Thread(target=play).start()
    server.serve_forever()
for attempt in range(600):
    manager = Manager(ADDRESS, b"key")
    try:
        manager.connect()
        break
    except OSError:
        time.sleep(0.1)
shared = manager.episodes()
shared.get()
print("waits for episodes", flush=True)
shared.get()  # here
