# /// verdict
# needs = ["xgboost"]
# start = "XGBoostJob"
# who = []
# says = ["It completed, but", "never connected"]
# ///
"""Two workers that each boost their own trees: nobody told xgboost of a tracker."""
import time

import numpy
import xgboost


class Slowly(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, history):
        time.sleep(0.5)


rows = numpy.random.default_rng(0).random((200, 4))
data = xgboost.DMatrix(rows, rows.sum(1))
xgboost.train({"nthread": 1}, data, 40, evals=[(data, "train")], callbacks=[Slowly()])
