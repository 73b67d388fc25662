# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# everyone = true
# says = ["torchrun waits for 2 nodes", "--rdzv-id", "date-0"]
# ///
# An elastic torchrun whose id each node makes for itself.
echo launching
exec torchrun --nnodes 2:4 --rdzv-backend c10d --rdzv-id "date-$RANK" --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" --no-python sleep 1
