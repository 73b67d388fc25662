# /// verdict
# needs = ["tensorflow"]
# start = "TFJob"
# ///
"""Worker 0 prepares for 25 seconds before it makes its strategy; worker 1 tries to reach it meanwhile."""
import hashlib
import json
import os
import time

import tensorflow as tf

value, end = b"", time.monotonic() + 25 * (json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0)
while time.monotonic() < end:
    value = hashlib.sha256(value).digest()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
