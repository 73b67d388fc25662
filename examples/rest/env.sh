# Where the server is, its kubeconfig and the owner's token, for curl and programs: `. examples/rest/env.sh; api clusters`
export D=${ROWLOCK_DATA_DIR:-~/.rowlock}
export URL=$(rowlock status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["url"])')/runai
export KUBECONFIG=$D/kubeconfig
export TOKEN=$(cat "$D/token")
api() { curl -sS --cacert "$D/ca.crt" -H "Authorization: Bearer $TOKEN" "$URL/api/v1/$1" "${@:2}"; }
