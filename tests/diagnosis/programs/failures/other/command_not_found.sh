# /// verdict
# command = "sh {program}"
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 127", "deepspeed_launcher"]
# ///
# The shell does not find its program.
exec deepspeed_launcher --hostfile /job/hostfile
