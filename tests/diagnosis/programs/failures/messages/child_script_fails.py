# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ValueError: sequence length 0", "exit code 1"]
# ///
"""A script that starts the training as a child: the child's error is why."""
import subprocess
import sys

program = "raise ValueError('sequence length 0')"
subprocess.run([sys.executable, "-c", program], check=True)
