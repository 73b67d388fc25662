# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# everyone = true
# says = ["torchrun waits for 2 nodes", "--rdzv-id"]
# ///
# Each node makes an id of its own for the rendezvous, so neither finds the other.
echo launching
exec torchrun --nnodes 2 --rdzv-backend c10d --rdzv-id "$(hostname)" --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" --no-python sleep 1
