# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# after = "joining"
# everyone = true
# who = ["rank 1", "worker-1"]
# says = ["rank 0 at", "and rank 0 listens at"]
# never = ["message between them was lost", "WORLD_SIZE"]
# ///
"""One process of JAX looks for the coordinator at another port than the one at which it listens."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax

process = int(os.environ["PROCESS_ID"])
print("joining", flush=True)
jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{int(os.environ['COORDINATOR_PORT']) + process}",
    int(os.environ["NUM_PROCESSES"]),
    process,
)
