# /// verdict
# needs = ["tensorflow"]
# start = "TFJob"
# who = ["rank 1", "worker-1"]
# says = ["exit code 3"]
# ///
"""Worker 1 leaves with exit code 3 in the middle; the other one is told by its coordination service."""
import json
import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)


@tf.function
def step():
    strategy.run(lambda: total.assign_add(1.0))


for number in range(400):
    if number == 3 and index == 1:
        os._exit(3)
    step()
