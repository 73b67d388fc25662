"""What mpirun reaches other pods with: what stands for `sshd` and `ssh` in pods of MPI TrainJobs whose programs are this machine's (no
sshd need be installed), and for `kubectl` in launchers of MPIJobs that run in containers.

`shell_access.py` and `container_delivery.py` decide which containers get which; `server.py`, `client.py` and `contained_kubectl.py` run
inside pods and import the standard library only. May import: `pod`.
"""
