# /// verdict
# start = "PyTorchJob"
# ranks = 1
# container = {livenessProbe = {exec = {command = ["false"]}, periodSeconds = 1, failureThreshold = 2}}
# pod = {terminationGracePeriodSeconds = 2}
# who = ["rank 0"]
# says = ["liveness probe"]
# never = ["kill -9"]
# ///
"""The kubelet ends it, for its liveness probe fails."""
import time

time.sleep(600)
