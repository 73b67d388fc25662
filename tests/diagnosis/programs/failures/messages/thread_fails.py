# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["AssertionError: batch 3 has no labels", "{here}"]
# ///
"""A thread of the loader fails; the main thread sees it and leaves with 1."""
import sys
import threading

failed = threading.Event()


def load():
    try:
        for batch in range(5):
            assert batch < 3, "batch 3 has no labels"  # here
    finally:
        failed.set()


threading.Thread(target=load).start()
failed.wait()
print("the loader has ended, giving up", flush=True)
sys.exit(1)
