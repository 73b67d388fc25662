"""The same for a model in shards (FSDP): each rank writes its own part of the weights and of the optimizer.

    rowlock verify-resume -n 2 -- python train_fsdp.py
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from rowlock.runtime import Checkpoint, ResumableSampler, progress

STEPS = int(os.environ.get("STEPS", "60"))


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)
    )
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    sampler = ResumableSampler(len(data), batch_size=16, seed=7)
    loader = DataLoader(data, batch_sampler=sampler)

    checkpoint = Checkpoint(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, every=20)
    step = checkpoint.load()
    while step < STEPS:
        for inputs, targets in sampler.batches(loader):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            progress(step, STEPS, loss=loss.item())
            checkpoint.step(step)
            if step == STEPS:
                break
    checkpoint.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
