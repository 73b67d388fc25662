# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# everyone = true
# who = ["rank 0", "rank 1"]
# says = ["torchrun waits for 2 nodes", "the same --node-rank"]
# ///
# A line copied from the first node's shell: both nodes are node 0.
echo launching
exec torchrun --nnodes 2 --node-rank 0 --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" --no-python sleep 1
