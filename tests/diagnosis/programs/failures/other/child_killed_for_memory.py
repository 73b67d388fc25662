# /// verdict
# start = "PyTorchJob"
# ranks = 1
# container = {resources = {limits = {memory = "200Mi"}}}
# who = ["rank 0"]
# says = ["memory", "the limit is 200.0Mi"]
# ///
"""A child eats the memory and is killed; the program fails because of it."""
import subprocess
import sys

eater = "kept = []\nwhile True: kept.append(bytearray(b'x' * (4 << 20)))"
subprocess.run([sys.executable, "-c", eater], check=True)
