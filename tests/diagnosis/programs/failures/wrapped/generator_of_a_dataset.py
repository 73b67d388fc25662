# /// verdict
# needs = ["tensorflow"]
# ranks = 1
# who = ["rank 0"]
# says = ["ValueError", "row 7 has 3 columns", "{here}"]
# never = ["cuInit"]
# ///
"""Keras reads from a Python generator below tf.data, which raises. TensorFlow puts the traceback into the message of its own error."""
import numpy
import tensorflow as tf


def rows():
    for number in range(20):
        if number == 7:
            raise ValueError("row 7 has 3 columns, the header has 4")  # here
        yield numpy.ones(4, numpy.float32), numpy.float32(1)


shapes = (tf.TensorSpec((4,), tf.float32), tf.TensorSpec((), tf.float32))
data = tf.data.Dataset.from_generator(rows, output_signature=shapes).batch(2)
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, epochs=1, verbose=2)
