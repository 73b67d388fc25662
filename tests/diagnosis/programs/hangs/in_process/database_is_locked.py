# /// verdict
# needs = ["torch"]
# after = "holds"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 0 holds a transaction and waits at a barrier, to which rank 1 comes when it may write into the same SQLite file."""
import os
import sqlite3

import torch.distributed as dist

dist.init_process_group("gloo")
database = sqlite3.connect(os.environ["SCRATCH"] + "/metrics.db", timeout=900, isolation_level=None)
if dist.get_rank() == 0:
    database.execute("BEGIN EXCLUSIVE")
    print("holds", flush=True)
dist.barrier()
if dist.get_rank() == 1:
    database.execute("CREATE TABLE loss (step, value)")  # here
dist.barrier()
