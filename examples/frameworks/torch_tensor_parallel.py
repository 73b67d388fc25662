"""Tensor parallel: the first matrix is cut by columns, the second by rows, and one sum per layer pair puts it together."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same start, the same data: the ranks share one model, not the work on samples
rule = torch.randn(16, 4)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
parallelize_module(model, init_device_mesh("cpu", (size,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
shape = tuple(model[0].weight.to_local().shape)
print(f"[rank {rank} of {size}] holds {shape} of the first layer's (64, 16)", flush=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = []
for step in range(60):
    points = torch.randn(128, 16)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(points), (points @ rule).argmax(1))
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
    if rank == 0 and step % 20 == 19:
        print(f"[rank {rank}] step {step + 1} loss {losses[-1]:.4f}", flush=True)
if not losses[-1] < 0.7 * losses[0]:
    raise SystemExit("the loss did not fall")
if rank == 0:
    print(f"trained on {size} ranks: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
dist.barrier()  # together: gloo may abort a rank whose peers leave while it is still ending
dist.destroy_process_group()
