# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 9"]
# never = ["OSError", "mirror"]
# ///
"""An error that is logged and handled; the program works on and ends with a code of its own much later."""
import logging
import sys

logging.basicConfig(level=logging.INFO)
try:
    raise OSError("the mirror is down")
except OSError:
    logging.exception("trying the next mirror")
for step in range(40):
    print("step", step, flush=True)
sys.exit(9)
