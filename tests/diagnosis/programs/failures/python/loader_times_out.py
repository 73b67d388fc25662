# /// verdict
# needs = ["torch"]
# ranks = 1
# who = ["rank 0"]
# says = ["DataLoader timed out after 3 seconds", "{here}"]
# ///
"""A worker of the DataLoader reads from a mount that does not answer, and the loader has a time limit."""
import time

from torch.utils.data import DataLoader, Dataset


class Mounted(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            time.sleep(60)
        return index


for batch in DataLoader(Mounted(), batch_size=2, num_workers=1, timeout=3):  # here
    print(batch, flush=True)
