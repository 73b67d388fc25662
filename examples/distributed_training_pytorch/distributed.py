"""Data-parallel training of a small residual network, with snapshots: the program of the DDP image.

    torchrun --nproc_per_node=1 --nnodes=2 ... distributed.py --batch_size 8 30 2

Every rank trains on its share of a made-up data set (coloured shapes: nothing to download), gradients are averaged by
DistributedDataParallel, and rank 0 saves a snapshot every few epochs. A restarted job goes on from the last snapshot.

Where the snapshot goes: `--snapshot`, else the directory in ROWLOCK_CHECKPOINT_DIR (rowlock gives every job one that
survives restarts), else the working directory.
"""

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Residual(nn.Module):
    """Two 3x3 convolutions around a shortcut, as in a ResNet's basic block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def network(classes: int = 4, channels: int = 8) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.ReLU(),
        Residual(channels),
        Residual(channels),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, classes),
    )


def shapes(samples: int, classes: int = 4, size: int = 8) -> TensorDataset:
    """Noisy images whose class is the quadrant that is lit; the same on every rank because the seed is fixed."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(classes, (samples,), generator=generator)
    images = torch.randn(samples, 3, size, size, generator=generator) * 0.8
    half = size // 2
    for i, label in enumerate(labels.tolist()):
        top, left = (label // 2) * half, (label % 2) * half
        images[i, label % 3, top : top + half, left : left + half] += 1.0
    return TensorDataset(images, labels)


class Trainer:
    def __init__(self, args: argparse.Namespace) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
        torch.manual_seed(0)
        model = network().to(self.device)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        self.path, self.save_every, self.epochs = args.snapshot, args.save_every, args.total_epochs
        self.first_epoch = self.resume(model)
        self.model = DistributedDataParallel(model, device_ids=[self.device.index] if on_gpu else None)
        data = shapes(args.samples)
        self.sampler = DistributedSampler(data, shuffle=True)
        self.loader = DataLoader(data, batch_size=args.batch_size, sampler=self.sampler)

    def resume(self, model: nn.Module) -> int:
        """The epoch to start with. Every rank reads the same file, so all start from the same weights."""
        if not os.path.exists(self.path):
            return 0
        snapshot = torch.load(self.path, map_location=self.device, weights_only=True)
        model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        epoch = int(snapshot["epoch"])
        print(f"[RANK {self.rank}] Resuming training from snapshot at Epoch {epoch}", flush=True)
        return epoch

    def save(self, epoch: int) -> None:
        """Write beside, then rename: a crash in the middle leaves the previous snapshot whole."""
        state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": epoch}
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(self.path) or ".", delete=False) as out:
            torch.save(state, out)
        os.replace(out.name, self.path)
        print(f"Epoch {epoch} | Training snapshot saved at {os.path.basename(self.path)}", flush=True)

    def epoch(self, number: int) -> float:
        self.sampler.set_epoch(number)
        total, criterion = 0.0, nn.CrossEntropyLoss()
        for images, labels in self.loader:
            self.optimizer.zero_grad()
            loss = criterion(self.model(images.to(self.device)), labels.to(self.device))
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.loader)

    def train(self) -> None:
        for number in range(self.first_epoch, self.epochs):
            started = time.monotonic()
            loss = torch.tensor(self.epoch(number))
            dist.all_reduce(loss)
            took = time.monotonic() - started
            print(
                f"[RANK {self.rank}] Epoch {number + 1}/{self.epochs} | Steps: {len(self.loader)} "
                f"| loss {loss.item() / self.world:.4f} | {took:.3f} s",
                flush=True,
            )
            if self.rank == 0 and (number + 1) % self.save_every == 0:
                self.save(number + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Distributed training of a small residual network.")
    parser.add_argument("total_epochs", type=int, help="how many epochs to train")
    parser.add_argument("save_every", type=int, help="epochs between two snapshots")
    parser.add_argument("--batch_size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--samples", type=int, default=512, help="size of the made-up data set")
    parser.add_argument(
        "--snapshot", default=os.path.join(os.environ.get("ROWLOCK_CHECKPOINT_DIR", "."), "snapshot.pt")
    )
    args = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        Trainer(args).train()
        dist.barrier()  # rank 0 holds the meeting point: it leaves last, or the others fail at their end
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
