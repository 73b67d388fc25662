# /// verdict
# needs = ["tensorflow"]
# start = "PyTorchJob"
# command = "sh {program}"
# after = "joining"
# everyone = true
# says = ["2 ranks run, they expect 3", "TF_CONFIG"]
# never = ["keeps the others waiting", "message between them was lost", "WORLD_SIZE"]
# ///
# A script makes a TF_CONFIG of three workers in a job of two pods.
unset WORLD_SIZE
export TF_CONFIG="{\"cluster\": {\"worker\": [\"$MASTER_ADDR:2222\", \"worker-0:2222\", \"worker-1:2222\"]}, \"task\": {\"type\": \"worker\", \"index\": $RANK}}"
exec python -c '
import tensorflow as tf
print("joining", flush=True)
tf.distribute.MultiWorkerMirroredStrategy()
'
