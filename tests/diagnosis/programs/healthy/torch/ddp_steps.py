# /// verdict
# needs = ["torch"]
# after = "step 3"
# short = true
# ///
"""Two ranks of DDP that train, a line a step."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    loss = model(torch.randn(64, 32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.3)
    print(f"step {step} loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
