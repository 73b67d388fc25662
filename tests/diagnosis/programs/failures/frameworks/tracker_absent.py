# /// verdict
# needs = ["xgboost"]
# start = "XGBoostJob"
# who = ["rank 0", "rank 1", "master-0", "worker-0"]
# says = ["XGBoostError: Failed to connect to the tracker", ":29777"]
# never = ["lost it", "lost its peers"]
# ///
"""Nobody has started XGBoost's tracker."""
import os

import xgboost

with xgboost.collective.CommunicatorContext(
    dmlc_tracker_uri=os.environ["MASTER_ADDR"], dmlc_tracker_port=29777, dmlc_task_id=os.environ["RANK"], dmlc_retry=2
):
    pass
