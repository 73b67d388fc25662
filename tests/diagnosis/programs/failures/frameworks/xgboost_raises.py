# /// verdict
# needs = ["xgboost"]
# start = "XGBoostJob"
# ranks = 3
# who = ["rank 2"]
# says = ["rank 2", "ValueError: column 3 has no name", "{here}"]
# ///
"""Rank 2 fails in a callback; the others lose a peer in the next tree."""
import os

import numpy
import xgboost
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip="0.0.0.0", port=int(os.environ["MASTER_PORT"]))
    tracker.start()


class Check(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, history):
        if rank == 2 and epoch == 3:
            raise ValueError("column 3 has no name")  # here


settings = {"dmlc_tracker_uri": os.environ["MASTER_ADDR"], "dmlc_tracker_port": int(os.environ["MASTER_PORT"])}
with xgboost.collective.CommunicatorContext(**settings, dmlc_task_id=str(rank), dmlc_retry=60):
    rows = numpy.random.default_rng(rank).random((200, 4))
    data = xgboost.DMatrix(rows, rows.sum(1))
    xgboost.train({"tree_method": "hist", "nthread": 1}, data, 50, callbacks=[Check()])
