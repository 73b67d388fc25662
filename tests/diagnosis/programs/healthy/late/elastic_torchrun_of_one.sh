# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 1
# command = "sh {program}"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# ///
# An elastic torchrun for one or two nodes in a job of one pod: it waits 30 seconds for a second one, and then begins alone.
echo launching
exec torchrun --nnodes 1:2 --rdzv-backend c10d --rdzv-id alone --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" --no-python python -c '
import time
for step in range(8):
    print("step", step, flush=True)
    time.sleep(1)
'
