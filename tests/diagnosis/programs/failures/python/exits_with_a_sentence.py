# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 1", "no config in /etc/trainer: give --config"]
# ///
"""sys.exit with a sentence, as command lines do."""
import sys

print("reading the configuration", flush=True)
sys.exit("no config in /etc/trainer: give --config")
