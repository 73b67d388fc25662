# /// verdict
# needs = ["tensorflow"]
# ranks = 1
# who = ["rank 0"]
# says = ["It completed, but", "loss of rank 0 is nan from step"]
# ///
"""fit of Keras, with a step that is much too large: its bars tell of a loss that becomes nan, and it ends with 0."""
import numpy
import tensorflow as tf

numpy.random.seed(0)
tf.random.set_seed(0)
rows = (numpy.random.rand(256, 8) * 1000).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(16), tf.keras.layers.Dense(1)])
model.compile(tf.keras.optimizers.SGD(0.5), "mse")
model.fit(rows, rows.sum(1), batch_size=32, epochs=6)
