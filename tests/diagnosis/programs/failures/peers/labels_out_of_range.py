# /// verdict
# needs = ["xgboost"]
# ranks = 1
# who = ["rank 0"]
# says = ["XGBoostError", "in the range of [0, num_class)", "{here}"]
# ///
"""XGBoost's message has a stack of C++ in it."""
import numpy
import xgboost

data = xgboost.DMatrix(numpy.random.random((20, 3)), numpy.full(20, 7))
xgboost.train({"objective": "multi:softmax", "num_class": 3, "nthread": 1}, data, 3)  # here
