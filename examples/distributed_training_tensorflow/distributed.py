"""Data-parallel training with MultiWorkerMirroredStrategy: every worker holds the model, gradients are averaged.

The operator tells each worker in TF_CONFIG who the others are; the strategy reads it by itself. There is no master:
worker 0 is the chief and the only one that saves. Without TF_CONFIG this trains alone.
"""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

FEATURES, CLASSES, PER_WORKER, BATCH = 16, 4, 512, 64

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # first of all: it starts this worker's server
task = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {"type": "worker", "index": 0})
epochs = int(os.environ.get("EPOCHS", "6"))


def samples(context):
    """This worker's share: points with labels that a hidden linear rule gives them."""
    points = tf.random.stateless_normal([PER_WORKER, FEATURES], seed=[1, context.input_pipeline_id])
    rule = tf.random.stateless_normal([FEATURES, CLASSES], seed=[7, 7])
    found = tf.data.Dataset.from_tensor_slices((points, tf.argmax(points @ rule, axis=1)))
    return found.shuffle(PER_WORKER, seed=0).batch(BATCH, drop_remainder=True)


with strategy.scope():

    def variable(shape, seed):
        start = tf.random.stateless_normal(shape, seed=[seed, seed], stddev=0.1)
        return tf.Variable(start, aggregation=tf.VariableAggregation.MEAN)  # of what the replicas would write

    hidden, out = variable([FEATURES, 32], 1), variable([32, CLASSES], 2)


def step(points, labels):
    with tf.GradientTape() as tape:
        logits = tf.nn.relu(points @ hidden) @ out
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    for parameter, gradient in zip((hidden, out), tape.gradient(loss, (hidden, out))):
        parameter.assign_sub(0.5 * gradient)
    return loss


@tf.function
def epoch(data):
    total = 0.0
    for points, labels in data:
        losses = strategy.run(step, args=(points, labels))
        total += strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)
    return total / (PER_WORKER // BATCH)


data = strategy.distribute_datasets_from_function(samples)
replicas = strategy.num_replicas_in_sync
losses = []
for number in range(1, epochs + 1):
    losses.append(float(epoch(data)))
    print(f"[{task['type']} {task['index']} of {replicas}] epoch {number} loss {losses[-1]:.4f}", flush=True)
if not losses[-1] < 0.7 * losses[0]:
    raise SystemExit(f"the loss did not fall: {losses[0]:.4f} to {losses[-1]:.4f}")
if task["index"] == 0:
    saved = tf.train.Checkpoint(hidden=hidden, out=out).write(os.environ.get("MODEL", "model"))
    print(f"trained on {replicas} workers: loss {losses[0]:.4f} to {losses[-1]:.4f}, saved as {saved}", flush=True)
