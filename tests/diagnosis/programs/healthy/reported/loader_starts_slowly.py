# /// verdict
# needs = ["torch"]
# after = "building"
# ///
"""The workers of a DataLoader build an index of 20 seconds before they give their first batch."""
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Index(Dataset):
    table = None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.table is None:
            end, self.table = time.monotonic() + 20, {}
            while time.monotonic() < end:
                self.table[len(self.table) % 1000] = [n * n for n in range(300)]
        return torch.ones(4)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print("building", flush=True)
    for batch in DataLoader(Index(), batch_size=4, num_workers=2, persistent_workers=True):
        dist.all_reduce(batch)
    dist.destroy_process_group()
