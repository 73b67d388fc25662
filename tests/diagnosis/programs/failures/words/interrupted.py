# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGINT"]
# ///
"""Somebody's script sends SIGINT to its own program."""
import os
import signal
import time

os.kill(os.getpid(), signal.SIGINT)
time.sleep(30)
