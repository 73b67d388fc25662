# /// verdict
# command = "bash {program}"
# ranks = 1
# who = ["rank 0"]
# says = ["KeyError: 'hidden_size'"]
# ///
# A shell runs Python behind a tee, and says a line after it.
set -o pipefail
python -c 'config = {"layers": 4}; print(config["hidden_size"])' 2>&1 | tee "$SCRATCH/log" || { echo "training failed, see log"; exit 4; }
