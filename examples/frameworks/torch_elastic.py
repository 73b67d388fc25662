"""Elastic DDP: run by torchrun, which takes min:max nodes from PET_NNODES and starts everybody anew when one is lost.

A snapshot after each epoch lets a new generation go on where the last one stopped.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

EPOCHS = int(os.environ.get("EPOCHS", "8"))
SNAPSHOT = os.path.join(os.environ.get("ROWLOCK_CHECKPOINT_DIR", "."), "snapshot.pt")  # one place for all ranks

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
points = torch.randn(1024, 16)
labels = (points @ torch.randn(16, 4)).argmax(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
begin, losses = 0, []
if os.path.exists(SNAPSHOT):
    state = torch.load(SNAPSHOT)
    model.load_state_dict(state["model"])
    begin, losses = state["epoch"], state["losses"]
    print(f"[rank {rank}] goes on after epoch {begin}", flush=True)
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.5)
mine = slice(rank, None, size)
for epoch in range(begin, EPOCHS):
    for batch_points, batch_labels in zip(points[mine].split(64), labels[mine].split(64)):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(batch_points), batch_labels)
        loss.backward()
        optimizer.step()
    dist.all_reduce(mean := loss.detach() / size)
    losses.append(float(mean))
    print(f"[rank {rank} of {size}] epoch {epoch + 1} loss {losses[-1]:.4f}", flush=True)
    if rank == 0:
        torch.save({"model": model.state_dict(), "epoch": epoch + 1, "losses": losses}, SNAPSHOT + ".new")
        os.replace(SNAPSHOT + ".new", SNAPSHOT)
    dist.barrier()
if not losses[-1] < 0.7 * losses[0]:
    raise SystemExit("the loss did not fall")
if rank == 0:
    print(f"trained on {size} ranks: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
dist.destroy_process_group()
