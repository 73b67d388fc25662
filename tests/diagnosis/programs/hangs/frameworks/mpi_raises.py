# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python {program}"
# after = "ArithmeticError"
# who = ["rank 1"]
# says = ["rank 1", "has failed and does not end: ArithmeticError: step size 0", "{here}"]
# never = ["rank 0 keeps", "rank 0 (pod", "launcher"]
# ///
"""An error of rank 1 ends its program, and MPI's end waits for rank 0, which waits for rank 1."""
from mpi4py import MPI

world = MPI.COMM_WORLD
for step in range(20):
    world.barrier()
    if step == 5 and world.rank == 1:
        raise ArithmeticError("step size 0")  # here
