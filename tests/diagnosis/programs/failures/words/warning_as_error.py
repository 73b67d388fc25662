# /// verdict
# ranks = 1
# who = ["rank 0"]
# command = "python -W error {program}"
# says = ["RuntimeWarning: the loss overflows", "{here}"]
# ///
"""A warning is an error by Python's flag."""
import warnings

warnings.warn("the loss overflows", RuntimeWarning)  # here
