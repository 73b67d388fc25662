# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGABRT", "Assertion `rows > 0' failed"]
# ///
"""An assertion of a C library: it says so on stderr and aborts."""
import ctypes

ctypes.CDLL(None).__assert_fail(b"rows > 0", b"kernel.c", 112, b"launch")
