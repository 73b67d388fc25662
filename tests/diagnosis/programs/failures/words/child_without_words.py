# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["CalledProcessError", "exit status 7"]
# ///
"""A helper program fails, and what it said went to /dev/null."""
import subprocess
import sys

subprocess.run([sys.executable, "-c", "raise SystemExit(7)"], check=True, stderr=subprocess.DEVNULL)
