# /// verdict
# needs = ["torch"]
# ranks = 2
# who = []
# says = ["It completed, but", "never connected"]
# ///
"""Two ranks that each train alone."""
import time

import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
    time.sleep(0.75)
