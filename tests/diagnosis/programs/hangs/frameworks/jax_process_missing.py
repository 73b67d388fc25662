# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# after = "joining"
# everyone = true
# says = ["2 ranks run, they expect 3", ["num_processes"]]
# never = ["keeps the others waiting", "message between them was lost", "WORLD_SIZE"]
# ///
"""JAX is told of three processes, and the job has two."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax

print("joining", flush=True)
jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}", 3, int(os.environ["PROCESS_ID"])
)
