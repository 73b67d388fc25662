# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["SIGABRT", "the reference count of a tensor is negative"]
# ///
"""An extension ends the interpreter with Py_FatalError."""
import ctypes

ctypes.pythonapi.Py_FatalError(b"the reference count of a tensor is negative")
