# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGALRM"]
# ///
"""An alarm that nobody handles ends the program."""
import signal
import time

print("compiling", flush=True)
signal.alarm(2)
time.sleep(60)
