# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# who = ["worker-0", "worker-1", "rank 0", "rank 1"]
# says = ["mismatch", "{here}"]
# ///
"""Two processes of JAX name the point at which they meet differently."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
from jax.experimental import multihost_utils

jax.config.update("jax_cpu_collectives_implementation", "gloo")
address = f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}"
jax.distributed.initialize(address, 2, int(os.environ["PROCESS_ID"]))
print("together", flush=True)
multihost_utils.sync_global_devices(f"epoch {jax.process_index()}")  # here
