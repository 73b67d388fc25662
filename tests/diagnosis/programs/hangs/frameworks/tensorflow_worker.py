# /// verdict
# needs = ["tensorflow"]
# start = "TFJob"
# after = "step 2"
# who = ["rank 1", "worker-1"]
# says = [["rank 1", "worker-1"], "{here}"]
# never = ["rank 0 keeps", "worker-0 keeps", "worker-0 (pod", "message between them was lost"]
# ///
"""MultiWorkerMirroredStrategy: worker 1 waits for an event; the other worker's step waits for its gradients."""
import json
import os
import threading

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)


@tf.function
def step():
    strategy.run(lambda: total.assign_add(1.0))


for number in range(5):
    if number == 3 and index == 1:
        threading.Event().wait()  # here
    step()
    print("step", number, flush=True)
