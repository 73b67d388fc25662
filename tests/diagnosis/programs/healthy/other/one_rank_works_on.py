# /// verdict
# start = "PyTorchJob"
# after = "exports"
# ///
"""Rank 1 has ended; rank 0 writes the model in another format for 20 seconds, in bits with pauses, and says nothing meanwhile."""
import hashlib
import os
import time

print("exports" if os.environ["RANK"] == "0" else "done", flush=True)
if os.environ["RANK"] == "0":
    data = bytes(1 << 22)
    with open("model.onnx", "wb") as file:
        for part in range(20):
            end = time.monotonic() + 0.7
            while time.monotonic() < end:
                data = hashlib.sha256(data).digest() * (1 << 17)
            file.write(data)
            time.sleep(0.3)
