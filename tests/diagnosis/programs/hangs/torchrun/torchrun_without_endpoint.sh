# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "Starting elastic_operator"
# env = {LOGLEVEL = "INFO"}
# everyone = true
# says = ["torchrun waits for 2 nodes", "localhost:29400", "--rdzv-endpoint"]
# ///
# The backend is c10d, and no endpoint is given: each torchrun waits at its own machine.
echo launching
exec torchrun --nnodes 2 --rdzv-backend c10d --rdzv-id pair --no-python sleep 1
