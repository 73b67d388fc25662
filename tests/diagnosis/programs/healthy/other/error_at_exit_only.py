# /// verdict
# ranks = 1
# ///
"""A function that was registered for the end fails; Python prints it and ends with 0."""
import atexit
import time


@atexit.register
def close():
    raise RuntimeError("the tracker is closed already")


for step in range(8):
    print("step", step, flush=True)
    time.sleep(0.5)
