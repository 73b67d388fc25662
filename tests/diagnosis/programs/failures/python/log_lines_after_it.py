# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["PermissionError", "{here}"]
# never = ["wandb"]
# ///
"""Handlers at exit still write lines after the traceback."""
import atexit
import sys

atexit.register(lambda: print("wandb: Run summary:\nwandb: loss 0.3\nuploading logs\ndone", file=sys.stderr))
print("E0000 00:00:1795914989.615473 17044 cuda_platform.cc:52] failed call to cuInit: CUDA error", file=sys.stderr)
raise PermissionError(13, "Permission denied", "/data/train")  # here
