# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# after = "step 1"
# ///
"""Two processes of JAX that gather every second."""
import os
import time

os.environ["JAX_PLATFORMS"], os.environ["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "cpu", "gloo"
import jax
from jax.experimental import multihost_utils

jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    int(os.environ["NUM_PROCESSES"]),
    int(os.environ["PROCESS_ID"]),
)
for step in range(12):
    multihost_utils.process_allgather(jax.numpy.ones(3))
    time.sleep(1)
    print("step", step, flush=True)
jax.distributed.shutdown()
