# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 7"]
# never = ["OSError"]
# ///
"""An error in __del__ is ignored by Python; the program ends with 7 for a reason of its own."""
import os


class Reader:
    def __del__(self):
        raise OSError("the reader was closed already")


Reader()
print("validation failed: accuracy 0.1 is below 0.9", flush=True)
os._exit(7)
