# /// verdict
# ranks = 1
# command = "sh {program}"
# who = ["rank 0"]
# says = ["exit code 124", "timeout"]
# ///
# timeout(1) ends a program that takes too long, and says nothing.
echo "warming up"
exec timeout 3 sleep 60
