# /// verdict
# who = ["rank 0", "rank 1"]
# ranks = 1
# says = ["AssertionError: 3 rows of 4", "{here}"]
# ///
"""A thread fails, and its hook ends the whole program with exit code 70, as many servers do."""
import os
import threading
import time
import traceback


def hook(info):
    traceback.print_exception(info.exc_type, info.exc_value, info.exc_traceback)
    os._exit(70)


def check():
    assert 3 == 4, "3 rows of 4"  # here


threading.excepthook = hook
threading.Thread(target=check).start()
time.sleep(60)
