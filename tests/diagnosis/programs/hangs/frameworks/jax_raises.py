# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# after = "FloatingPointError"
# who = ["rank 1", "worker-1"]
# says = ["rank 1", "has failed and does not end: FloatingPointError: nan in the gradient", "{here}"]
# never = ["rank 0 keeps", "rank 0 (pod"]
# ///
"""Process 1 raises, and then waits at its exit for process 0 to say goodbye, too."""
import os

os.environ["JAX_PLATFORMS"], os.environ["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "cpu", "gloo"
import jax
from jax.experimental import multihost_utils

jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    int(os.environ["NUM_PROCESSES"]),
    int(os.environ["PROCESS_ID"]),
)
for step in range(5):
    if step == 2 and jax.process_index() == 1:
        raise FloatingPointError("nan in the gradient")  # here
    multihost_utils.process_allgather(jax.numpy.ones(3))
