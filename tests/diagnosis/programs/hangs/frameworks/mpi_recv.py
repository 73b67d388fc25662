# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python {program}"
# after = "ready"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps"]
# ///
"""Rank 1 never calls the barrier: it sleeps. Rank 0 spins in it, as Open MPI does."""
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
world.barrier()
print("ready", flush=True)
if world.rank == 1:
    time.sleep(600)  # here
world.barrier()
