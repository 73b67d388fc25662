# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 3 python {program}"
# ranks = 3
# after = "result 1"
# ///
"""Rank 0 gives tasks of several seconds to the others, and waits for whichever ends first."""
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
if world.rank == 0:
    for number in range(6):
        print("result", world.recv(source=MPI.ANY_SOURCE), flush=True)
else:
    for number in range(3):
        end = time.monotonic() + 3 * world.rank
        while time.monotonic() < end:
            sum(n for n in range(1000))
        world.send(number, dest=0)
