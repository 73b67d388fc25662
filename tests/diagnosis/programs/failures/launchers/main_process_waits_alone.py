# /// verdict
# needs = ["accelerate", "torch"]
# who = ["rank 1"]
# says = ["rank 1", "ended with exit code 0 while others still needed it", "{here}"]
# never = ["message between them was lost"]
# env = {ACCELERATE_USE_CPU = "1"}
# ///
"""Only the main process of an Accelerator waits for everyone: the other one has ended by then."""
import os
import time

from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
if not accelerator.is_main_process:
    os._exit(0)
time.sleep(1)
print("saving", flush=True)
accelerator.wait_for_everyone()  # here
