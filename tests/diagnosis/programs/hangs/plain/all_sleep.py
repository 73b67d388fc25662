# /// verdict
# after = "waiting for the cluster"
# who = []
# says = ["No rank moves", "{here}"]
# never = ["keeps the others waiting", "message between them was lost"]
# ///
"""Both ranks sleep for a day."""
import time

print("waiting for the cluster", flush=True)
time.sleep(86400)  # here
