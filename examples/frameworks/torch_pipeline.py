"""Pipeline parallel: each rank holds one stage of the model; micro-batches flow forward, gradients back."""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
rule = torch.randn(16, 4)
first, last = rank == 0, rank == size - 1
torch.manual_seed(rank + 1)
part = torch.nn.Sequential(
    torch.nn.Linear(16 if first else 32, 4 if last else 32), *([] if last else [torch.nn.ReLU()])
)
stage = PipelineStage(part, rank, size, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.cross_entropy)
optimizer = torch.optim.SGD(part.parameters(), lr=0.3)
print(f"[rank {rank}] is stage {rank + 1} of {size}", flush=True)
torch.manual_seed(0)  # the first stage feeds what the last one has the labels of
losses = []
for step in range(80):
    points = torch.randn(128, 16)
    optimizer.zero_grad()
    seen: list[torch.Tensor] = []
    if first and last:
        schedule.step(points, target=(points @ rule).argmax(1), losses=seen)
    elif first:
        schedule.step(points)
    elif last:
        schedule.step(target=(points @ rule).argmax(1), losses=seen)
    else:
        schedule.step()
    optimizer.step()
    if last:
        losses.append(float(torch.stack(seen).mean()))
        if step % 20 == 19:
            print(f"[rank {rank}] step {step + 1} loss {losses[-1]:.4f}", flush=True)
if last:
    if not losses[-1] < 0.7 * losses[0]:
        raise SystemExit("the loss did not fall")
    print(f"trained in {size} stages: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
dist.barrier()
dist.destroy_process_group()
