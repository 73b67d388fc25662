# /// verdict
# start = "PyTorchJob"
# command = "sh {program}"
# after = "preparing"
# ///
# Rank 1 unpacks for ten seconds before its Python starts; rank 0's is there at once and waits for its file.
echo preparing
if [ "$RANK" = 1 ]; then
    sleep 10
    touch "$SCRATCH/ready"
fi
exec python -c '
import os, time
while not os.path.exists(os.environ["SCRATCH"] + "/ready"):
    time.sleep(0.1)
print("both are there")
'
