# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "mpirun --allow-run-as-root -n 2 python {program}"
# who = ["rank 0", "rank 1"]
# says = ["ModuleNotFoundError: No module named 'petsc_of_the_cluster'", "{here}"]
# ///
"""Both ranks fail before they come to MPI."""
import petsc_of_the_cluster  # here
