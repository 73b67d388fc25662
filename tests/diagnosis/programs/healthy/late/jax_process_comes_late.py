# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# ///
"""Process 0 of JAX, which the other one connects to, prepares for a minute. gRPC tries again after longer and longer pauses."""
import hashlib
import os
import time

os.environ["JAX_PLATFORMS"], os.environ["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "cpu", "gloo"
import jax

value, end = b"", time.monotonic() + 50 * (os.environ["PROCESS_ID"] == "0")
while time.monotonic() < end:
    value = hashlib.sha256(value).digest()
jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    int(os.environ["NUM_PROCESSES"]),
    int(os.environ["PROCESS_ID"]),
)
jax.distributed.shutdown()
