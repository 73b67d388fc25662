# /// verdict
# start = "PyTorchJob"
# ranks = 1
# container = {resources = {limits = {ephemeral-storage = "8Mi"}}, volumeMounts = [{name = "cache", mountPath = "/cache"}]}
# pod = {volumes = [{name = "cache", emptyDir = {sizeLimit = "8Mi"}}], terminationGracePeriodSeconds = 1}
# who = ["rank 0"]
# says = ["Evicted"]
# never = ["signal 15", "kill -9"]
# ///
"""It fills its volume beyond the limit."""
import time

with open("/cache/shards", "wb") as file:
    for _ in range(64):
        file.write(bytes(1 << 20))
        file.flush()
time.sleep(120)
