"""XGBoost over several processes: the XGBoostJob's master runs the tracker and is rank 0 as well; all build one model."""

import os
import threading

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
waiting = None
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip="0.0.0.0", port=port, sortby="task")
    tracker.start()
    waiting = threading.Thread(target=tracker.wait_for, daemon=True)
    waiting.start()

dice = np.random.default_rng(rank)
points = dice.normal(size=(400, 8))
labels = (points[:, 0] * points[:, 1] + points[:, 2] > 0).astype(int)
known = {}
with collective.CommunicatorContext(
    dmlc_tracker_uri=address, dmlc_tracker_port=port, dmlc_task_id=f"{rank:03d}", dmlc_retry=60
):
    shown = collective.get_rank()
    data = xgboost.DMatrix(points, labels)
    settings = {"objective": "binary:logistic", "eval_metric": "logloss", "max_depth": 4, "nthread": 1}
    xgboost.train(settings, data, 20, evals=[(data, "train")], evals_result=known, verbose_eval=False)
losses = known["train"]["logloss"]
print(f"[rank {shown} of {size}] loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
if waiting is not None:
    waiting.join(timeout=30)
    print(f"trained on {size} ranks: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
if not losses[-1] < 0.7 * losses[0]:
    raise SystemExit("the loss did not fall")
