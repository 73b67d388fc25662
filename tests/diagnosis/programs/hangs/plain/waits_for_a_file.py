# /// verdict
# after = "waiting for"
# who = ["rank 1"]
# says = ["rank 0", "rank 1", "{here}", "{poll}"]
# never = ["rank 0 keeps"]
# ///
"""Rank 0 looks every half second for a file that rank 1 is to write; rank 1 reads a pipe into which nobody writes."""
import os
import time

scratch, rank = os.environ["SCRATCH"], os.environ["RANK"]
print("waiting for the tokenizer", flush=True)
if rank == "1":
    reader, writer = os.pipe()
    os.read(reader, 1)  # here
while not os.path.exists(scratch + "/tokenizer.json"):
    time.sleep(0.5)  # poll
