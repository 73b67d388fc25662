# /// verdict
# command = "sh -c 'sed s/COLON// {program} > $SCRATCH/train.py; exec python $SCRATCH/train.py'"
# ranks = 1
# who = ["rank 0"]
# says = ["SyntaxError: expected ':'", "train.py:8"]
# ///
if True:  # a program of which sed makes one that cannot be parsed
    print("COLON:")
