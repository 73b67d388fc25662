"""FSDP2: every rank holds a share of each layer's parameters, gathers a layer when it is needed, and lets it go."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
rule = torch.randn(16, 4)
layers = [torch.nn.Linear(16, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 4)]
model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
whole = sum(p.numel() for p in model.parameters())
mesh = init_device_mesh("cpu", (size,))
for layer in layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
held = sum(p.to_local().numel() for p in model.parameters())
print(f"[rank {rank} of {size}] holds {held} of {whole} parameters", flush=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(rank)
losses = []
for step in range(60):
    points = torch.randn(64, 16)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(points), (points @ rule).argmax(1))
    loss.backward()
    optimizer.step()
    dist.all_reduce(mean := loss.detach() / size)
    losses.append(float(mean))
    if rank == 0 and step % 20 == 19:
        print(f"[rank {rank}] step {step + 1} loss {losses[-1]:.4f}", flush=True)
if not losses[-1] < 0.7 * losses[0]:
    raise SystemExit("the loss did not fall")
if rank == 0:
    print(f"trained on {size} ranks: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
dist.barrier()  # together: gloo may abort a rank whose peers leave while it is still ending
dist.destroy_process_group()
