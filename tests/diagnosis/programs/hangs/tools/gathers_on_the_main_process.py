# /// verdict
# needs = ["accelerate"]
# after = "evaluating"
# everyone = true
# who = ["rank 0", "rank 1"]
# says = ["rank 0", "{gather}", "{everyone}"]
# never = ["message between them was lost"]
# env = { ACCELERATE_USE_CPU = "true" }
# ///
"""accelerate: the main process gathers alone, and the others wait for everyone."""
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Linear(4, 1))
accelerator.backward(model(torch.ones(2, 4)).sum())
print("evaluating", flush=True)
if accelerator.is_main_process:
    accelerator.gather(torch.ones(1))  # gather
accelerator.wait_for_everyone()  # everyone
