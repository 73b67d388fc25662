# /// verdict
# command = "bash {program}"
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 1", "DATA_ROOT: set DATA_ROOT to the directory of the shards"]
# ///
# A wrapper asks for a variable that the job does not set.
set -euo pipefail
echo "host $(hostname), $(date)"
cd "${DATA_ROOT:?set DATA_ROOT to the directory of the shards}"
exec python train.py
