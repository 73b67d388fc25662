# /// verdict
# needs = ["xgboost"]
# start = "XGBoostJob"
# ranks = 3
# after = "round 3"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "rank 2 keeps"]
# ///
"""A callback of rank 1 waits for ever; the trees of the others need its histograms."""
import os
import time

import numpy
import xgboost
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip="0.0.0.0", port=int(os.environ["MASTER_PORT"]))
    tracker.start()


class Pause(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, history):
        print("round", epoch, flush=True)
        if rank == 1 and epoch == 3:
            time.sleep(600)  # here


settings = {"dmlc_tracker_uri": os.environ["MASTER_ADDR"], "dmlc_tracker_port": int(os.environ["MASTER_PORT"])}
with xgboost.collective.CommunicatorContext(**settings, dmlc_task_id=str(rank), dmlc_retry=60):
    rows = numpy.random.default_rng(rank).random((200, 4))
    data = xgboost.DMatrix(rows, rows.sum(1))
    xgboost.train({"tree_method": "hist", "nthread": 1}, data, 50, callbacks=[Pause()])
