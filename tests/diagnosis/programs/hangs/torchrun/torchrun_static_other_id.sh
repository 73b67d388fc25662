# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# everyone = true
# says = ["torchrun waits for 2 nodes", "--rdzv-id"]
# ///
# A static rendezvous whose nodes give it names of their own: they share a store, and read different keys.
echo launching
exec torchrun --nnodes 2 --rdzv-id "node-$RANK" --no-python sleep 1
