# /// verdict
# after = "begin"
# short = true
# ///
"""Two ranks that work each for itself and say little."""
import hashlib
import time

print("begin", flush=True)
value, end = b"", time.monotonic() + 15
while time.monotonic() < end:
    value = hashlib.sha256(value).digest()
print("end", value.hex()[:8], flush=True)
