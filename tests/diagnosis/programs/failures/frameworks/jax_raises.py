# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# who = ["rank 1", "worker-1"]
# says = ["FloatingPointError: nan in the gradient", "{here}"]
# never = ["heartbeat"]
# ///
"""Process 1 raises; the coordinator of process 0 then reports that a task died."""
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
