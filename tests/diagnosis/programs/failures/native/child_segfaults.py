# /// verdict
# ranks = 2
# who = ["rank 1"]
# says = ["rank 1", "SIGSEGV", "{here}"]
# ///
"""Rank 1 converts its data with a program of its own, which dies of SIGSEGV."""
import os
import subprocess
import sys
import time

if os.environ["RANK"] == "1":
    subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"], check=True)  # here
time.sleep(300)
