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


@tf.function
def step(value):
    def replica():
        return tf.distribute.get_replica_context().all_reduce("sum", value)

    return strategy.run(replica)


for number in range(5):
    if number == 3 and index == 1:
        threading.Event().wait()  # here
    step(tf.constant(1.0))
    print("step", number, flush=True)
