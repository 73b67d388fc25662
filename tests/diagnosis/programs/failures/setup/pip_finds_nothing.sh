# /// verdict
# command = "bash {program}"
# who = ["rank 0", "rank 1"]
# says = ["exit code 1", "No matching distribution found for cluster-kernels"]
# ///
# The packages of the job are installed first; one of them is not there, and the training never begins.
set -e
python -m pip install --quiet --disable-pip-version-check --no-index "cluster-kernels==2.3"
python -c 'print("training")'
