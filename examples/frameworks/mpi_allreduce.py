"""Data-parallel training over MPI: every rank takes its share of the samples, Allreduce averages the gradients."""

import socket

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
rule = np.random.default_rng(0).normal(size=(16, 4))
points = np.random.default_rng(rank + 1).normal(size=(256, 16))
labels = (points @ rule).argmax(1)
weights, losses = np.zeros((16, 4)), []
print(f"[rank {rank} of {size}] on {socket.gethostname()}", flush=True)
for step in range(60):
    logits = points @ weights
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    loss = -np.log(chances[np.arange(len(labels)), labels]).mean()
    chances[np.arange(len(labels)), labels] -= 1
    gradient = points.T @ chances / len(labels)
    total = np.empty_like(gradient)
    world.Allreduce(gradient, total)
    weights -= 1.0 * total / size
    losses.append(world.allreduce(loss) / size)
    if rank == 0 and step % 20 == 19:
        print(f"[rank {rank}] step {step + 1} loss {losses[-1]:.4f}", flush=True)
if not losses[-1] < 0.7 * losses[0]:
    raise SystemExit("the loss did not fall")
if rank == 0:
    print(f"trained on {size} ranks: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
