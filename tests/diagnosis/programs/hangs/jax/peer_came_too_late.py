# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# after = "GetKeyValue() timed out"
# who = ["rank 1", "worker-1"]
# says = ["rank 1 sleeps", "{here}", "GetKeyValue() timed out"]
# never = ["message between them was lost"]
# ///
"""Process 1 is not there when process 0 begins its first collective. Process 0 gives up after 30 seconds, and waits for process 1 at its exit."""
import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
from jax.experimental import multihost_utils

jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    int(os.environ["NUM_PROCESSES"]),
    int(os.environ["PROCESS_ID"]),
)
if jax.process_index() == 1:
    time.sleep(600)  # here
multihost_utils.sync_global_devices("begin")
