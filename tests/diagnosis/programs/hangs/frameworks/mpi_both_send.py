# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python {program}"
# after = "exchange"
# says = ["rank 0", "rank 1", "{here}"]
# never = ["launcher", "kubectl"]
# ///
"""Both ranks send much before either receives: more than MPI buffers."""
import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
world.barrier()
print("exchange", world.rank, flush=True)
rows = numpy.zeros(1 << 22)
world.Send(rows, 1 - world.rank)  # here
world.Recv(rows, 1 - world.rank)
