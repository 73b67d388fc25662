# /// verdict
# needs = ["torch"]
# after = "compiling"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""torch.compile on rank 1 waits in its backend for the lock of a cache that another process holds; rank 0 has compiled and reduces."""
import fcntl
import os
import subprocess
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path = f"{os.environ['SCRATCH']}/cache.lock-{dist.get_rank()}"
holder = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(600)"


def backend(graph, inputs):
    if dist.get_rank() == 1:
        with subprocess.Popen([sys.executable, "-c", holder, path], stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            print("compiling", flush=True)
            with open(path, "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # here
    return graph.forward


step = torch.compile(lambda x: x * 2 + 1, backend=backend)
dist.all_reduce(step(torch.ones(3)))
