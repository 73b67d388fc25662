#!/usr/bin/env bash
# jax 0.10.2 with kubernetes 35.0.0: `jax.distributed.initialize()` asks every cluster environment that it knows whether the
# program runs there, also when the coordinator's address, the number of processes and the process's index are all given.
# The one for Kubernetes takes a set KUBERNETES_SERVICE_HOST for its answer and loads the pod's service account, where the
# package `kubernetes` is installed. So in a pod without a mounted token (`automountServiceAccountToken: false`; the kubelet
# sets the variable all the same) initialize() raises ConfigException although it was told everything. Without the package,
# or with `cluster_detection_method="deactivate"`, the same call forms the group.
# Run: bash findings/jax_initialize_needs_a_pods_token.sh  (needs python3.11+ and a package index; about a minute)
# Seen: "outside of a pod: 1 process", "in a pod without a token: ConfigException: Service token file does not exist.",
# "the same with detection deactivated: 1 process"
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 kubernetes==35.0.0
cat > "$place/group.py" <<'PROGRAM'
import socket
import sys

import jax

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = "127.0.0.1:%d" % free.getsockname()[1]
method = {"cluster_detection_method": sys.argv[1]} if len(sys.argv) > 1 else {}
try:
    jax.distributed.initialize(coordinator_address=address, num_processes=1, process_id=0, **method)
    print(f"{jax.process_count()} process")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
PROGRAM
export JAX_PLATFORMS=cpu
unset KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT
outside=$("$place/venv/bin/python" "$place/group.py")
echo "outside of a pod: $outside"
export KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=443
inside=$("$place/venv/bin/python" "$place/group.py")
echo "in a pod without a token: $inside"
deactivated=$("$place/venv/bin/python" "$place/group.py" deactivate)
echo "the same with detection deactivated: $deactivated"
[ "$outside" = "1 process" ] && [ "${inside%%:*}" = ConfigException ] && [ "$deactivated" = "1 process" ] ||
    { echo 'jax no longer behaves as described above'; exit 1; }
