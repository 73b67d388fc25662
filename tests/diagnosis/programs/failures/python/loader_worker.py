# /// verdict
# needs = ["torch"]
# ranks = 1
# who = ["rank 0"]
# says = ["UnicodeDecodeError", "{here}"]
# ///
"""A worker of the DataLoader fails; its traceback comes inside of the main process's."""
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return b"\xff\xfe".decode("utf-8") if index == 5 else "a"  # here


for batch in DataLoader(Lines(), batch_size=2, num_workers=1):
    print(batch, flush=True)
