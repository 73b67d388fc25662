# /// verdict
# needs = ["torch"]
# after = "Traceback"
# ///
"""Rank 0 logs an error of its tracker that it has handled, and trains on, silently."""
import logging
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
try:
    raise ConnectionError("tracking server is away")
except ConnectionError:
    logging.exception("no figures are sent")
end = time.monotonic() + 14
while True:
    go_on = torch.tensor([float(time.monotonic() < end)])
    for _ in range(50):
        torch.randn(128, 128) @ torch.randn(128, 128)
    dist.broadcast(go_on, 0)
    if not go_on.item():
        break
dist.destroy_process_group()
