# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# after = "step 2"
# who = ["rank 1", "worker-1"]
# says = [["rank 1", "worker-1"], "{here}"]
# never = ["rank 0 keeps", "worker-0 keeps", "message between them was lost"]
# ///
"""Process 1 of JAX waits for input; process 0 waits for its part of a sum."""
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
    if step == 3 and jax.process_index() == 1:
        reader, writer = os.pipe()
        os.read(reader, 1)  # here
    total = multihost_utils.process_allgather(jax.numpy.ones(3))
    print("step", step, float(total.sum()), flush=True)
