# /// verdict
# command = "bash {program}"
# ranks = 1
# who = ["rank 0"]
# says = ["BrokenPipeError"]
# never = ["lost its connection"]
# ///
# Somebody wanted only the first lines: `head` ends after two, and the program may write no further one.
set -o pipefail
python -u -c '
import time
for step in range(100):
    print("step", step)
    time.sleep(0.05)
' | head -n 2
