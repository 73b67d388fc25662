# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGBUS"]
# never = ["kill -9"]
# ///
"""A file that is mapped into memory becomes shorter: SIGBUS."""
import mmap
import os

place = os.environ["SCRATCH"] + "/weights"
with open(place, "wb+") as file:
    file.truncate(1 << 20)
    weights = mmap.mmap(file.fileno(), 0)
    file.truncate(0)
    print(weights[1 << 19])
