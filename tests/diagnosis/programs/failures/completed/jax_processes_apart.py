# /// verdict
# needs = ["jax"]
# start = "JAXJob"
# who = ["worker-0", "worker-1", "rank 0", "rank 1"]
# says = ["It completed, but", "never connected"]
# ///
"""Two processes of JAX that nobody told of each other: each takes itself for the only one."""
import os
import time

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp

weights = jnp.ones(8)
step = jax.jit(lambda w: w - 0.1 * jax.grad(lambda v: (v**2).sum())(w))
print(f"process {jax.process_index()} of {jax.process_count()}", flush=True)
for number in range(30):
    weights = step(weights)
    print(f"step {number} loss {float((weights**2).sum()):.4f}", flush=True)
    time.sleep(0.5)
