# /// verdict
# needs = ["tensorflow"]
# start = "TFJob"
# who = ["worker-1", "rank 1"]
# says = ["worker-1", "/no/such/model", "{here}"]
# never = ["worker-0 (pod"]
# ///
"""Worker 1 loads a model from a directory that is not there, while worker 0 waits for it in the first step."""
import json
import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    tf.saved_model.load("/no/such/model")  # here


@tf.function
def step():
    strategy.run(lambda: total.assign_add(1.0))


step()
