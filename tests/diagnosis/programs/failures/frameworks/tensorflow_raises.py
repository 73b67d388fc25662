# /// verdict
# needs = ["tensorflow"]
# start = "TFJob"
# ranks = 2
# who = ["rank 1", "worker-1"]
# says = ["ValueError: no files match /data/*.tfrecord", "{here}"]
# never = ["cuInit", "oneDNN"]
# ///
"""Worker 1 has no data; worker 0 sees its peer go."""
import json
import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
for step in range(6):
    if step == 2 and json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
        raise ValueError("no files match /data/*.tfrecord")  # here
    strategy.run(lambda: total.assign_add(1.0))
