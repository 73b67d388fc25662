# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python -m mpi4py {program}"
# who = ["rank 1"]
# says = ["rank 1", "MPI_ERR_TRUNCATE", "{here}"]
# ///
"""Rank 1 has too little room for what rank 0 sends."""
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
if world.rank == 0:
    world.Send(numpy.zeros(64), dest=1)
else:
    world.Recv(numpy.zeros(8), source=0)  # here
world.barrier()
