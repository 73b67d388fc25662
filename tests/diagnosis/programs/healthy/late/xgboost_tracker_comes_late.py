# /// verdict
# needs = ["xgboost"]
# start = "XGBoostJob"
# ///
"""Rank 0 prepares for 40 seconds before it starts its tracker; the other worker tries to reach it meanwhile."""
import hashlib
import os
import time

import xgboost
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    value, end = b"", time.monotonic() + 40
    while time.monotonic() < end:
        value = hashlib.sha256(value).digest()
    tracker = RabitTracker(n_workers=size, host_ip="0.0.0.0", port=int(os.environ["MASTER_PORT"]))
    tracker.start()
settings = {"dmlc_tracker_uri": os.environ["MASTER_ADDR"], "dmlc_tracker_port": int(os.environ["MASTER_PORT"])}
with xgboost.collective.CommunicatorContext(**settings, dmlc_task_id=str(rank), dmlc_retry=60):
    xgboost.collective.broadcast("together", root=0)
