"""What stands for `sshd` and `ssh` in pods of MPI TrainJobs whose programs are this machine's: no sshd need be installed.

`shell_access.py` decides which containers get which; `server.py` and `client.py` run inside pods and import the standard
library only. May import: `pod`.
"""
