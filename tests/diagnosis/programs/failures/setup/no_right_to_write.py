# /// verdict
# ranks = 2
# who = ["rank 1"]
# says = ["rank 1", "PermissionError: [Errno 13] Permission denied: '/root/checkpoint.json'", "RuntimeError: cannot save step 10", "{here}"]
# ///
"""Rank 1 runs as another user and cannot write its checkpoint; its error has the first one as its cause."""
import json
import os
import time


def save(step):
    try:
        with open("/root/checkpoint.json", "w") as file:
            json.dump({"step": step}, file)
    except OSError as error:
        raise RuntimeError(f"cannot save step {step}") from error  # here


if os.environ["RANK"] == "1":
    os.setuid(65534)
    save(10)
time.sleep(300)
