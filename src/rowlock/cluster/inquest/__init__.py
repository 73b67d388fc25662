"""What happened, on this machine: evidence from processes, logs and exit facts; the verdicts are in `rowlock.verdicts`."""
