# /// verdict
# needs = ["torch"]
# ranks = 1
# who = ["rank 0", "rank 1"]
# says = ["RuntimeError: expected 3 channels, got 4", "{here}"]
# never = ["CalledProcessError: Command"]
# ///
"""A launcher of the kind of accelerate starts two ranks as children, and raises when one of them has failed."""
import os
import subprocess
import sys

if len(sys.argv) > 1:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{os.environ['SCRATCH']}/store", rank=int(sys.argv[1]), world_size=2)
    dist.barrier()
    if sys.argv[1] == "1":
        raise RuntimeError("expected 3 channels, got 4")  # here
    dist.barrier()
else:
    children = [subprocess.Popen([sys.executable, __file__, str(n)], env={**os.environ, "RANK": str(n)}) for n in range(2)]
    for child in children:
        if child.wait():
            raise subprocess.CalledProcessError(returncode=child.returncode, cmd=[sys.executable, __file__])
