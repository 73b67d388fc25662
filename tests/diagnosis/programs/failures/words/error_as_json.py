# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ValueError: bad batch", "{here}"]
# never = ["Traceback", "level"]
# ///
"""Errors are logged as JSON, one object a line, as structlog and python-json-logger do."""
import json
import sys
import traceback

print(json.dumps({"level": "info", "event": "started"}), flush=True)
try:
    raise ValueError("bad batch")  # here
except ValueError:
    print(json.dumps({"level": "error", "event": "training failed", "exception": traceback.format_exc()}), file=sys.stderr, flush=True)
    sys.exit(1)
