# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 1", "accuracy 0.41 is below 0.60"]
# never = ["out of memory", "RuntimeError"]
# ///
"""A batch that was too large is handled with its traceback, and training goes on; in the end the result is too bad for the program."""
import sys
import time
import traceback

size = 64
for step in range(30):
    try:
        if size > 16:
            raise RuntimeError("CPU out of memory: tried to allocate 8.00 GiB")
        print(f"step {step} size {size} loss {1 / (step + 1):.3f}", flush=True)
    except RuntimeError:
        traceback.print_exc()
        size //= 2
    time.sleep(0.1)
sys.exit("accuracy 0.41 is below 0.60")
