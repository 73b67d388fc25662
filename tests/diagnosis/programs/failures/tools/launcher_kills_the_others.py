# /// verdict
# needs = ["torch"]
# ranks = 1
# who = ["rank 0", "rank 1"]
# says = ["IndexError: index 9 is out of range", "{here}"]
# ///
"""A launcher of the kind of DeepSpeed's: it logs what it starts, ends the other rank when one has failed, and leaves with that one's code."""
import os
import subprocess
import sys
import time

if len(sys.argv) > 1:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{os.environ['SCRATCH']}/store", rank=int(sys.argv[1]), world_size=2)
    dist.barrier()
    if sys.argv[1] == "1":
        raise IndexError("index 9 is out of range")  # here
    time.sleep(600)
else:
    def say(words):
        print(time.strftime(f"[%Y-%m-%d %H:%M:%S,123] [INFO] [launch.py:347:main] {words}"), flush=True)

    command = [sys.executable, "-u", __file__]
    children = [subprocess.Popen([*command, str(n)], env={**os.environ, "LOCAL_RANK": str(n)}) for n in range(2)]
    for child in children:
        say(f"process {child.pid} spawned with command: {command}")
    while all(child.poll() is None for child in children):
        time.sleep(1)
    code = next(child.returncode for child in children if child.poll() is not None)
    for child in children:
        say(f"Killing subprocess {child.pid}")
        child.kill()
    time.sleep(3)
    say(f"{command} exits with return code = {code}")
    sys.exit(code)
