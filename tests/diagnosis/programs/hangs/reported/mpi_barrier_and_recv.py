# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python {program}"
# after = "ready"
# who = ["rank 0", "rank 1"]
# says = [["{here}", "{there}"]]
# never = ["message between them was lost"]
# ///
"""Rank 0 waits in a barrier, rank 1 for a message of rank 0."""
from mpi4py import MPI

world = MPI.COMM_WORLD
world.barrier()
print("ready", flush=True)
if world.rank == 0:
    world.barrier()  # here
else:
    world.recv(source=0)  # there
world.barrier()
