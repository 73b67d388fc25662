# /// verdict
# needs = ["mpi4py", "mpirun"]
# start = "MPIJob"
# command = "env -u PRTE_MCA_plm_ssh_agent -u PRTE_MCA_prte_default_hostfile mpirun --allow-run-as-root --oversubscribe -n 2 python {program}"
# who = []
# says = ["It completed, but", "launcher", "2 workers run none", "PRTE_MCA_prte_default_hostfile"]
# ///
"""Open MPI 5 without its own names of the operator's variables: mpirun starts both ranks beside itself."""
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
for step in range(30):
    world.allreduce(step)
    if world.rank == 0:
        print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)
    time.sleep(1)
