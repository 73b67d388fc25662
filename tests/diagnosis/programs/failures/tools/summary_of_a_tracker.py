# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["KeyError: 'attention_mask'", "{here}"]
# ///
"""A tracker of experiments uploads at exit and prints its summary of twenty lines below the traceback that ended the program."""
import atexit
import sys
import time


def goodbye():
    time.sleep(3)
    print("TRACKER INFO: ---------------------------------------------", file=sys.stderr)
    for name in ("loss", "lr", "epoch", "grad_norm", "tokens", "samples"):
        print(f"TRACKER INFO:     {name} [20] : (0.1, 2.5)", file=sys.stderr)
        time.sleep(0.2)
    for word in ("Uploads:", "  environment details : 1", "  git metadata : 1", "  installed packages : 1", "  source_code : 2"):
        print(f"TRACKER INFO:   {word}", file=sys.stderr)
    print("TRACKER INFO: Uploading metrics, params, and assets before program termination", file=sys.stderr)
    print("TRACKER INFO: The process of uploading may take several seconds", file=sys.stderr)


atexit.register(goodbye)
for step in range(5):
    print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    batch = {"input_ids": step} if step == 4 else {"input_ids": step, "attention_mask": 1}
    batch["attention_mask"]  # here
