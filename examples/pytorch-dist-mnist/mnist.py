"""Digits with DistributedDataParallel: the program of the `pytorch-dist-mnist` images.

    python mnist.py --backend gloo

Started once per pod by a PyTorchJob; the process group comes from MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK. The
digits are drawn from a 5x7 font with noise and shifts, so there is nothing to download.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FONT = (
    "0E11131519110E 040C040404040E 0E11010204081F 1F02040201110E 02060A121F0202 "
    "1F101E0101110E 0608101E11110E 1F010204080808 0E11110E11110E 0E11110F01020C"
).split()


def digits(samples: int, seed: int) -> TensorDataset:
    """(samples, 1, 12, 12) images and their labels; equal on every rank for equal arguments."""
    generator = torch.Generator().manual_seed(seed)
    glyphs = torch.zeros(10, 7, 5)
    for digit, rows in enumerate(FONT):
        for y in range(7):
            bits = int(rows[2 * y : 2 * y + 2], 16)
            for x in range(5):
                glyphs[digit, y, x] = (bits >> (4 - x)) & 1
    labels = torch.randint(10, (samples,), generator=generator)
    images = torch.randn(samples, 1, 12, 12, generator=generator) * 0.25
    places = torch.randint(0, 5, (samples, 2), generator=generator)
    for i, (label, (y, x)) in enumerate(zip(labels.tolist(), places.tolist())):
        images[i, 0, y : y + 7, x : x + 5] += glyphs[label]
    return TensorDataset(images, labels)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.fc1, self.fc2 = nn.Linear(16 * 4 * 4, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def train(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, epoch: int, every: int) -> None:
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % every == 0:
            share = 100.0 * step / len(loader)
            print(f"Train Epoch: {epoch} [{step}/{len(loader)} ({share:.0f}%)]\tloss={loss.item():.4f}", flush=True)


def accuracy(model: nn.Module) -> float:
    images, labels = digits(512, seed=2).tensors
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Distributed digits")
    parser.add_argument("--backend", default="gloo", choices=["gloo", "nccl"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.008)
    parser.add_argument("--samples", type=int, default=3072)
    parser.add_argument("--log-interval", type=int, default=16)
    args = parser.parse_args()

    print(f"Using distributed PyTorch with {args.backend} backend", flush=True)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(args.backend)
    torch.manual_seed(1)
    model: nn.Module = Net()
    data, sampler = digits(args.samples, seed=1), None
    if dist.is_initialized():
        model, sampler = nn.parallel.DistributedDataParallel(model), DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, shuffle=sampler is None)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        if sampler is not None:
            sampler.set_epoch(epoch)
        train(model, loader, optimizer, epoch, args.log_interval)
        print(f"\naccuracy={accuracy(model):.4f}\n", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
