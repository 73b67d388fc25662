# /// verdict
# after = "sorting"
# ///
"""The ranks only wait for a child that works."""
import os
import subprocess

print("sorting", flush=True)
command = "seq 1 700000 | sort -R > $SCRATCH/order.$RANK && sort -n $SCRATCH/order.$RANK | tail -1"
subprocess.run(["sh", "-c", f"{command}"], check=True)
os.unlink(f"{os.environ['SCRATCH']}/order.{os.environ['RANK']}")
