# /// verdict
# who = ["rank 0", "rank 1"]
# says = ["FileNotFoundError", "labels.txt", "{here}"]
# never = ["RuntimeError: CUDA out of memory"]
# short = true
# ///
"""It prints a traceback that it has handled, works on, and fails of something else."""
import os
import time
import traceback

try:
    raise RuntimeError("CUDA out of memory: trying half the batch")
except RuntimeError:
    traceback.print_exc()
for step in range(4):
    time.sleep(0.8)
    print("step", step, flush=True)
open(os.environ["SCRATCH"] + "/labels.txt")  # here
