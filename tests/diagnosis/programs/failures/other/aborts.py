# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGABRT", "aborted itself"]
# ///
"""abort() in a library, without a word."""
import os

os.abort()
