# /// verdict
# needs = ["torch"]
# ranks = 2
# who = ["rank 1"]
# says = [["killed by signal: Killed", "Connection reset by peer"], ["{here}", "{there}"]]
# ///
"""A worker of rank 1's DataLoader is killed; the main process says so, wherever it is then. Rank 0 loses its peer."""
import os
import signal

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if os.environ["RANK"] == "1" and index >= 24:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(4)


dist.init_process_group("gloo")
for batch in DataLoader(Samples(), batch_size=8, num_workers=1):  # here
    dist.all_reduce(batch)  # there
