# /// verdict
# needs = ["torch"]
# after = "batch 1"
# ///
"""DataLoader workers prepare batches for two seconds each, while the main processes wait."""
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            torch.randn(64, 64).svd()
        return torch.ones(4)


dist.init_process_group("gloo")
for number, batch in enumerate(DataLoader(Images(), batch_size=4, num_workers=1)):
    dist.all_reduce(batch)
    print("batch", number, flush=True)
dist.destroy_process_group()
