# /// verdict
# needs = ["torch"]
# after = "step 0"
# ///
"""Gradients of eight small batches for each exchange, so ranks meet rarely; a line every few seconds."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    for part in range(8):
        end = time.monotonic() + 0.4
        with model.no_sync() if part < 7 else torch.enable_grad():
            while time.monotonic() < end:
                loss = model(torch.randn(32, 256)).square().mean()
            loss.backward()
    optimizer.step()
    print(f"step {step}", flush=True)
dist.destroy_process_group()
