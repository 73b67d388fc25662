#!/bin/sh
# Schemathesis against the OpenAPI document that a server of its own serves: no answer may be a server error or another
# shape, content type or status than the document says. `make schemathesis` installs it; EXAMPLES=8 per operation.
set -eu
BIN=$1
SCHEMATHESIS=$2
export ROWLOCK_DATA_DIR
ROWLOCK_DATA_DIR=$(mktemp -d)/cluster
trap '"$BIN/rowlock" down -y >/dev/null 2>&1 || true' EXIT
"$BIN/rowlock" up -d --simulated-gpus 1 >/dev/null
"$BIN/rowlock" project create team-a --gpus 1 >/dev/null
"$BIN/runai" pytorch submit sample --workers 1 -i absent -p team-a >/dev/null
URL=$("$BIN/rowlock" status --json | "$BIN/python" -c 'import json, sys; print(json.load(sys.stdin)["url"])')/runai
TOKEN=$(cat "$ROWLOCK_DATA_DIR/token")
curl -sS --cacert "$ROWLOCK_DATA_DIR/ca.crt" -H "Authorization: Bearer $TOKEN" "$URL/api/v1/openapi.json" \
    > "$ROWLOCK_DATA_DIR/openapi.json"
# Left out: what ends the server, waits, streams without an end, or logs the owner out.
"$SCHEMATHESIS" run "$ROWLOCK_DATA_DIR/openapi.json" --url "$URL" -H "Authorization: Bearer $TOKEN" \
    --tls-verify "$ROWLOCK_DATA_DIR/ca.crt" --phases examples,fuzzing -n "${EXAMPLES:-8}" --continue-on-failure --no-color \
    --checks not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance \
    --exclude-path-regex 'drain|/wait|logs|what-if|token|me/password'
