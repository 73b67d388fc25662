# /// verdict
# needs = ["jax"]
# ranks = 1
# who = ["rank 0"]
# says = ["ValueError: temperature must not be negative", "{here}"]
# ///
"""A Python callback below a compiled function of JAX raises; JAX raises an error of its own with the traceback in its message."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp


def check(value):
    if value < 0:
        raise ValueError("temperature must not be negative")  # here


@jax.jit
def step(value):
    jax.debug.callback(check, value)
    return value - 1


value = jnp.float32(2)
for number in range(6):
    value = step(value)
    value.block_until_ready()
    jax.effects_barrier()
    print("step", number, flush=True)
