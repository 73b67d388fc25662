# /// verdict
# needs = ["xgboost"]
# start = "XGBoostJob"
# after = "round 1"
# ///
"""Two workers of XGBoost; a callback evaluates for a second in each round."""
import os
import time

import numpy
import xgboost
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip="0.0.0.0", port=int(os.environ["MASTER_PORT"]))
    tracker.start()


class Evaluate(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, history):
        time.sleep(1)
        print("round", epoch, flush=True)


settings = {"dmlc_tracker_uri": os.environ["MASTER_ADDR"], "dmlc_tracker_port": int(os.environ["MASTER_PORT"])}
with xgboost.collective.CommunicatorContext(**settings, dmlc_task_id=str(rank), dmlc_retry=60):
    rows = numpy.random.default_rng(rank).random((200, 4))
    data = xgboost.DMatrix(rows, rows.sum(1))
    xgboost.train({"tree_method": "hist", "nthread": 1}, data, 10, callbacks=[Evaluate()])
