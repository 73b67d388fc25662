# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["rank 1", "could not decode shard 3", "{here}"]
# never = ["rank 0 (pod"]
# ///
"""A DataLoader's worker of rank 1 raises an error `from` another one; torch raises it again in the main process."""
import json
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        text = "{" if index == 3 and os.environ["RANK"] == "1" else "{}"
        try:
            json.loads(text)
        except ValueError as error:
            raise RuntimeError(f"could not decode shard {index}") from error  # here
        return torch.ones(2)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for batch in DataLoader(Shards(), num_workers=1):
        dist.all_reduce(batch)
        print("batch", flush=True)
