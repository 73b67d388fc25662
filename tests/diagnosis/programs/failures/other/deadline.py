# /// verdict
# start = "PyTorchJob"
# ranks = 1
# pod = {activeDeadlineSeconds = 4}
# who = ["rank 0"]
# says = ["DeadlineExceeded", "Pod was active on the node longer than the specified deadline"]
# never = ["signal 15", "SIGTERM"]
# ///
"""The pod's own deadline ends it."""
import time

time.sleep(600)
