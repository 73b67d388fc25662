# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python {program}"
# after = "ready"
# who = ["rank 0", "rank 1"]
# says = ["rank 1", "{here}"]
# never = ["message between them was lost"]
# ///
"""Rank 1 looks for a message that rank 0 sends only after the broadcast in which it waits for rank 1."""
from mpi4py import MPI

world = MPI.COMM_WORLD
world.barrier()
print("ready", flush=True)
if world.rank == 1:
    world.probe(source=0)  # here
world.bcast("weights", root=1)
