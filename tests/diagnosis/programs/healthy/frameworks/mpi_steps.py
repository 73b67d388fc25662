# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python {program}"
# after = "step 1"
# ///
"""Rank 0 computes five seconds of each step, rank 1 polls in the barrier meanwhile."""
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
for step in range(4):
    end = time.monotonic() + 5
    while world.rank == 0 and time.monotonic() < end:
        sum(n * n for n in range(10000))
    world.barrier()
    if world.rank == 0:
        print("step", step, flush=True)
