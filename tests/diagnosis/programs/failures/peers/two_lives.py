# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 1
# command = "torchrun --standalone --nproc-per-node 2 --max-restarts 1 {program}"
# who = ["rank 0", "rank 1", "master-0"]
# says = ["OSError: the mount is stale", "{here}"]
# ///
"""torchrun starts its ranks again after the first error; the second life dies of another. They do not meet: gloo, started again at once, may
not find the port of the life before."""
import os
import time

if os.environ["RANK"] == "1":
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise KeyError("no such table")
    raise OSError("the mount is stale")  # here
time.sleep(60)
