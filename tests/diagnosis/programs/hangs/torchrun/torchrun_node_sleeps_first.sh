# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# who = ["worker-0", "rank 1"]
# says = [["rank 1", "worker-0"], "sleep 600", ["2 nodes", "rendezvous"]]
# ///
# The second node's torchrun never starts: its pod waits for something else first.
[ "$RANK" = 1 ] && { echo "waits for a license"; sleep 600; }
echo launching
exec torchrun --nnodes 2 --rdzv-backend c10d --rdzv-id late --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" --no-python sleep 1
