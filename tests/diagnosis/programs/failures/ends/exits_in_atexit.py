# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 4", "upload of the model failed: the bucket is full"]
# never = ["logged no error"]
# ///
"""The training ends well; a function that was registered for the program's end fails to upload and ends it with a code of its own."""
import atexit
import os
import sys


@atexit.register
def upload():
    print("upload of the model failed: the bucket is full", file=sys.stderr, flush=True)
    os._exit(4)


for step in range(3):
    print("step", step, "loss", 1 / (step + 1), flush=True)
print("trained", flush=True)
