# /// verdict
# ranks = 1
# command = "sh {program}"
# who = ["rank 0"]
# says = ["137"]
# never = ["kernel was out of memory"]
# ///
# timeout(1) kills a program that takes too long and does not end when it is told to; it leaves with 137 then.
timeout -k 2 3 python -c '
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("saving, please wait", flush=True))
print("training", flush=True)
while True: time.sleep(1)
'
code=$?
echo "the training left with $code"
exit $code
