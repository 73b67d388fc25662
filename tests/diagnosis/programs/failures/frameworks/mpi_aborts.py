# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python -m mpi4py {program}"
# who = ["rank 1"]
# says = ["rank 1", "LookupError: no shard 7", "{here}"]
# ///
"""With `-m mpi4py` an error of one rank aborts all of them."""
from mpi4py import MPI

world = MPI.COMM_WORLD
for step in range(20):
    world.barrier()
    if step == 5 and world.rank == 1:
        raise LookupError("no shard 7")  # here
