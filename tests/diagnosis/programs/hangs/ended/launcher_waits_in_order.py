# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 1
# after = "waits for its peer"
# who = ["rank 0", "rank 1"]
# says = ["{there}", "ValueError: the shard is empty"]
# ///
"""A launcher starts two ranks and waits for the first. The second has failed, and nobody has asked for its exit code."""
import os
import subprocess
import sys

if "LOCAL_RANK" not in os.environ:
    ranks = [
        subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": n, "LOCAL_RANK": n, "WORLD_SIZE": "2"})
        for n in "01"
    ]
    sys.exit(max(rank.wait() for rank in ranks))
import torch.distributed as dist

store = dist.TCPStore(os.environ["MASTER_ADDR"], 29511, 2, os.environ["RANK"] == "0", wait_for_workers=False)
if os.environ["RANK"] == "1":
    raise ValueError("the shard is empty")
print("waits for its peer", flush=True)
store.get("shard of rank 1")  # there
