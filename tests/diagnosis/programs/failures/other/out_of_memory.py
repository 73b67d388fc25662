# /// verdict
# start = "PyTorchJob"
# container = {resources = {limits = {memory = "150Mi"}}}
# who = ["rank 1"]
# says = ["rank 1", "too much memory", "the limit is 150.0Mi"]
# short = true
# ///
"""Rank 1 keeps everything that it reads."""
import os
import time

kept = []
while len(kept) < 1000:
    kept.append(bytearray(b"x" * (4 << 20)) if os.environ["RANK"] == "1" else b"")
    time.sleep(0.02)
