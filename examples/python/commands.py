"""Submit a command, follow its log, and ask what happened; see docs/python.md."""

import sys

import rowlock

with rowlock.Client() as client:
    job = client.submit("greet", [sys.executable, "-c", "import os; print('rank', os.environ['RANK'])"], nnodes=2)
    for line in job.logs(follow=True):
        print(f"{line.source}: {line.text}")
    print(job.wait(timeout=60).phase, [pod.exit_code for pod in job.pods()])

    job = client.submit("stumble", ["sh", "-c", "echo no data; exit 3"])
    if job.wait(timeout=60).phase == "Failed":
        print(job.why())
