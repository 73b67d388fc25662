# /// verdict
# command = "bash {program}"
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 1", "FileNotFoundError", "/data/vocab.json"]
# ///
# A wrapper tidies up and says farewell in a trap when its program has failed.
set -e
trap 'code=$?; echo "[cleanup] removing scratch files"; echo "[cleanup] finished with $code"; exit $code' EXIT
python - <<'END'
import json
with open("/data/vocab.json") as file:
    json.load(file)
END
echo done
