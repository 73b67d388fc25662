# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["RuntimeError: the checkpoint has 12 layers, the model 24", "{here}"]
# ///
"""The error is logged with its traceback, behind a time and a level, and the program leaves by itself."""
import logging
import sys

logging.basicConfig(format="%(asctime)s | %(levelname)-8s | %(message)s", level="INFO")


def load():
    raise RuntimeError("the checkpoint has 12 layers, the model 24")  # here


try:
    load()
except RuntimeError:
    logging.exception("training failed")
    logging.info("closing the run")
    sys.exit(3)
