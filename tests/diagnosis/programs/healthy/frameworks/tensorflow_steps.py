# /// verdict
# needs = ["tensorflow"]
# start = "TFJob"
# after = "step 1"
# ///
"""Two workers of MultiWorkerMirroredStrategy."""
import time

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)


@tf.function
def step():
    strategy.run(lambda: total.assign_add(1.0))


for number in range(12):
    step()
    time.sleep(1)
    print("step", number, flush=True)
