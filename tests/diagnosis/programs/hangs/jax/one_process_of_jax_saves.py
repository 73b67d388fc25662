# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# after = "saving"
# who = ["rank 0", "rank 1", "worker-0", "worker-1"]
# says = ["{here}"]
# never = ["a message between them was lost"]
# ///
"""Only process 0 saves, and saving waits for all processes. Process 1 has nothing left to do, and waits for the others at its end."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
from jax.experimental import multihost_utils

jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    int(os.environ["NUM_PROCESSES"]),
    int(os.environ["PROCESS_ID"]),
)
multihost_utils.sync_global_devices("trained")
if jax.process_index() == 0:
    print("saving", flush=True)
    multihost_utils.sync_global_devices("save")  # here
