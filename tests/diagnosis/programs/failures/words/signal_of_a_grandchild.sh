# /// verdict
# command = "sh {program}"
# ranks = 1
# who = ["rank 0"]
# says = [["SIGABRT", "134"], "free(): double free detected"]
# ///
# A script passes on the exit code of its Python, which glibc has aborted.
python -c '
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
memory = libc.malloc(24)
libc.free(memory)
libc.free(memory)
'
exit $?
