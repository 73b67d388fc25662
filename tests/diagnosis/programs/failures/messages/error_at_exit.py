# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ValueError: no such optimizer", "{here}"]
# never = ["RuntimeError"]
# ///
"""The program fails, and then a function that was registered for its end fails, too."""
import atexit


@atexit.register
def close():
    raise RuntimeError("the tracker is closed already")


print("begin", flush=True)
raise ValueError("no such optimizer: sdg")  # here
