# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python {program}"
# after = "ready"
# who = ["rank 0", "rank 1"]
# says = ["{sent}", "{received}"]
# ///
"""Rank 0 sends with tag 1 and goes on to the barrier; rank 1 receives with tag 2, which never comes."""
from mpi4py import MPI

world = MPI.COMM_WORLD
world.barrier()
print("ready", flush=True)
if world.rank == 0:
    world.send({"loss": 0.5}, dest=1, tag=1)
    world.barrier()  # sent
else:
    world.recv(source=0, tag=2)  # received
    world.barrier()
