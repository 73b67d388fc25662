# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["rank 1", "CalledProcessError", "SIGABRT", "{here}"]
# never = ["rank 0 (pod"]
# ///
"""Rank 1 starts a converter as a child; the child is ended by a signal, and rank 1 raises because of it."""
import subprocess
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(4):
    dist.all_reduce(torch.ones(1))
    if step == 2 and dist.get_rank() == 1:
        subprocess.run([sys.executable, "-c", "import os; os.abort()"], check=True)  # here
    print("step", step, flush=True)
