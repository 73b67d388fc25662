"""JAX over several processes: jax.distributed joins them by what the JAXJob tells each; one jitted step spans them all."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize(
    coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    num_processes=int(os.environ["NUM_PROCESSES"]),
    process_id=int(os.environ["PROCESS_ID"]),
)
rank, size = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()), ("data",))
rows, copied = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
rule = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
mine = np.random.default_rng(rank + 1).normal(size=(256, 16)).astype("float32")  # this process's share of the rows
points = jax.make_array_from_process_local_data(rows, mine)
labels = jax.make_array_from_process_local_data(rows, (mine @ rule).argmax(1))
weights = jax.device_put(np.zeros((16, 4), "float32"), copied)


def loss_of(weights, points, labels):
    chances = jax.nn.log_softmax(points @ weights)
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], axis=1))


@jax.jit
def step(weights, points, labels):
    loss, gradient = jax.value_and_grad(loss_of)(weights, points, labels)
    return weights - 0.5 * gradient, loss


losses = []
for number in range(30):
    weights, loss = step(weights, points, labels)
    losses.append(float(loss))
    if number % 10 == 9:
        print(f"[process {rank} of {size}] step {number + 1} loss {losses[-1]:.4f}", flush=True)
multihost_utils.sync_global_devices("trained")
if not losses[-1] < 0.7 * losses[0]:
    raise SystemExit("the loss did not fall")
if rank == 0:
    print(f"trained on {size} processes: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
jax.distributed.shutdown()
