# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGXCPU", "CPU time"]
# ///
"""The limit of CPU time is reached."""
import resource

resource.setrlimit(resource.RLIMIT_CPU, (1, 5))
while True:
    pass
