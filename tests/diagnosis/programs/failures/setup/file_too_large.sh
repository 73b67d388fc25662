# /// verdict
# command = "bash {program}"
# ranks = 1
# who = ["rank 0"]
# says = ["File too large", "save"]
# ///
# The shell's limit for files ends the saving of a checkpoint.
ulimit -f 4
cat > train.py <<'END'
def save(path):
    with open(path, "wb") as file:
        file.write(bytes(1 << 20))


save("checkpoint.bin")
END
exec python train.py
