# /// verdict
# needs = ["torch"]
# after = "loading"
# who = ["rank 0"]
# says = ["rank 0", "{here}"]
# never = ["rank 1 keeps", "message between them was lost"]
# ///
"""Rank 0's data loader forks a worker while a thread holds a lock: the worker waits for it for ever. Rank 1 is in its gradient average."""
import threading

import torch
import torch.distributed as dist

LOCK = threading.Lock()


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        with LOCK:
            return torch.ones(4) * index


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    LOCK.acquire()
loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=dist.get_rank() == 0, multiprocessing_context="fork" if dist.get_rank() == 0 else None)
print("loading", flush=True)
for batch in loader:  # here
    dist.all_reduce(batch)
