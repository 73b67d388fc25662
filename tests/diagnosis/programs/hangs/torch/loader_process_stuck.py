# /// verdict
# needs = ["torch"]
# after = "batch 2"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""A worker process of rank 1's DataLoader waits for ever; rank 0 waits in all_reduce."""
import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if os.environ["RANK"] == "1" and index >= 24:
            time.sleep(600)
        return torch.ones(4) * index


dist.init_process_group("gloo")
for number, batch in enumerate(DataLoader(Samples(), batch_size=8, num_workers=1)):  # here
    dist.all_reduce(batch)
    print("batch", number, flush=True)
