# /// verdict
# needs = ["tensorflow"]
# start = "TFJob"
# ranks = 2
# who = ["rank 0", "rank 1", "worker-0", "worker-1"]
# says = ["ValueError", "Attempt to convert a value (PerReplica", "{here}"]
# never = ["cuInit"]
# ///
"""A model whose input has another width than the data: TensorFlow fails while it converts the tensors of the replicas."""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import numpy
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(numpy.ones((8, 5)), numpy.ones(8), batch_size=4, verbose=0)  # here
