# /// verdict
# needs = ["numpy"]
# ranks = 2
# who = ["rank 1"]
# says = ["rank 1", "Unable to allocate", "{here}"]
# ///
"""Rank 1 asks for an array that no machine has room for; rank 0 goes on until it is stopped."""
import os
import time

import numpy

if os.environ["RANK"] == "1":
    numpy.ones((1 << 24, 1 << 24))  # here
time.sleep(300)
