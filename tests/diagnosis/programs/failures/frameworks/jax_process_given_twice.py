# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# ranks = 3
# who = ["worker-0", "worker-1", "worker-2", "rank 0", "rank 1", "rank 2"]
# says = ["newer incarnation"]
# ///
"""Two of three processes of JAX call themselves process 1: JAX ends one of them."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax

print("joining", flush=True)
jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}", 3, min(1, int(os.environ["PROCESS_ID"]))
)
