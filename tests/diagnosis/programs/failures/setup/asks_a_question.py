# /// verdict
# ranks = 2
# who = ["rank 0", "rank 1"]
# says = ["EOFError: EOF when reading a line", "{here}"]
# ///
"""The program asks for an answer, and a pod has no terminal."""
import time

time.sleep(0.2)
answer = input("The output directory exists. Overwrite it? [y/N] ")  # here
