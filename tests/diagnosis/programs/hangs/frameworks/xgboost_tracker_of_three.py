# /// verdict
# needs = ["xgboost"]
# start = "XGBoostJob"
# after = "joining"
# everyone = true
# says = ["rendezvous is not complete", "tracker"]
# never = ["keeps the others waiting", "message between them was lost"]
# ///
"""The tracker waits for three workers, and the job has two."""
import os

import xgboost
from xgboost.tracker import RabitTracker

rank = int(os.environ["RANK"])
if rank == 0:
    tracker = RabitTracker(n_workers=3, host_ip="0.0.0.0", port=int(os.environ["MASTER_PORT"]))
    tracker.start()
settings = {"dmlc_tracker_uri": os.environ["MASTER_ADDR"], "dmlc_tracker_port": int(os.environ["MASTER_PORT"])}
print("joining", flush=True)
with xgboost.collective.CommunicatorContext(**settings, dmlc_task_id=str(rank), dmlc_retry=60):
    pass
