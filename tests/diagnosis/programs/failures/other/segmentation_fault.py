# /// verdict
# ranks = 2
# start = "PyTorchJob"
# who = ["rank 1"]
# says = ["rank 1", "SIGSEGV", "invalid memory access"]
# ///
"""Rank 1 reads address 8; rank 0 is stopped with the job."""
import ctypes
import os
import time

print("begin", flush=True)
if os.environ["RANK"] == "1":
    ctypes.string_at(8)
time.sleep(3)
