# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["OSError: cannot write the report", "caused by ValueError: loss is nan", "{here}"]
# ///
"""A second error while the first is handled: Python prints both, and the last is the error."""

try:
    raise ValueError("loss is nan")
except ValueError:
    raise OSError("cannot write the report")  # here
