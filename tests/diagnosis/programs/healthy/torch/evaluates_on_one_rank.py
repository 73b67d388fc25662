# /// verdict
# needs = ["torch"]
# after = "evaluating"
# ///
"""Rank 0 alone evaluates, without a word, while the others wait for its figure."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model, accuracy = torch.nn.Linear(512, 512), torch.zeros(1)
print("evaluating", flush=True)
if dist.get_rank() == 0:
    end = time.monotonic() + 20
    with torch.no_grad():
        while time.monotonic() < end:
            accuracy += (model(torch.randn(256, 512)) > 0).float().mean() / 1000
dist.broadcast(accuracy, 0)
print("accuracy", accuracy.item(), flush=True)
dist.destroy_process_group()
