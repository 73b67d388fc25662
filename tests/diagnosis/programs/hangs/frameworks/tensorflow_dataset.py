# /// verdict
# needs = ["tensorflow"]
# start = "TFJob"
# after = "step 2"
# who = ["rank 1", "worker-1"]
# says = [["rank 1", "worker-1"], ["{here}", "{inside}"]]
# never = ["rank 0 keeps", "worker-0 keeps", "message between them was lost"]
# ///
"""The generator of worker 1's dataset waits for a shard that nobody writes; worker 0 waits in the strategy's reduction."""
import threading

import tensorflow as tf

tf.config.set_visible_devices([], "GPU")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = strategy.cluster_resolver.task_id


def samples():
    for number in range(10):
        if number == 3 and index == 1:
            threading.Event().wait()  # inside
        yield float(number)


data = iter(tf.data.Dataset.from_generator(samples, output_signature=tf.TensorSpec((), tf.float32)))


@tf.function
def total(value):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda v: v, (value,)), axis=None)


for step in range(10):
    total(next(data))  # here
    print("step", step, flush=True)
