# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# after = "compiling"
# ///
"""Two processes of JAX compile a long unrolled loop before their first step. They have met before: Gloo waits 30 seconds for a peer."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    int(os.environ["NUM_PROCESSES"]),
    int(os.environ["PROCESS_ID"]),
)
multihost_utils.sync_global_devices("begin")
print("compiling", flush=True)


@jax.jit
def step(x):
    for n in range(300 if jax.process_index() else 100):
        x = jnp.sin(x @ x) + n
    return x


step(jnp.ones((4, 4))).block_until_ready()
multihost_utils.sync_global_devices("compiled")
