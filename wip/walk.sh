# run as: bash /tmp/walk/walk.sh ; new user on an embedded cluster
set -u
B=/work/h/images/.venv/bin; export PATH=$B:$PATH
export ROWLOCK_DATA_DIR=/tmp/walk/data HOME=/tmp/walk/home; mkdir -p $HOME
cd /tmp/walk
say() { echo; echo "=== $*"; }
touch $HOME/.bashrc
rowlock up -d 2>&1 | tail -5
say 1 build touches nothing
mkdir -p c1; cat > c1/Dockerfile <<'D'
FROM python
RUN groupadd -g 4343 crewx && useradd -u 4343 -g crewx pilotx
RUN ["apt-get","--version"]
RUN mkdir -p /opt/walkx && touch /opt/walkx/f && rm -rf /opt/walkx
RUN echo hi >> ~/.bashrc
COPY s.sh .
RUN sh s.sh
ENV PATH=/x/bin:$PATH
RUN echo made > /made-by-run
CMD ["sh","-c","cat /made-by-run; echo $PATH; pwd; which python; ls /usr/local/x"]
WORKDIR /workspace
D
echo 'touch /usr/local/x' > c1/s.sh
rowlock build -t walk:1 c1 2>&1 | tail -12; echo rc=$?
grep -c pilotx /etc/passwd; ls /usr/local/x; cat $HOME/.bashrc; 
say 2 run it
rowlock run -i walk:1 --rm; echo rc=$?
mkdir -p c2; printf 'FROM python:3.10\nRUN true\n' > c2/Dockerfile; rowlock build -t walk:2 c2 2>&1 | tail -5
printf 'FROM tensorflow/tensorflow\nRUN true\n' > c2/Dockerfile; rowlock build -t walk:3 c2 2>&1 | tail -5
say 3 bars
cat > bar.py <<'P'
import sys,time
for i in range(5):
    sys.stderr.write(f"\r{i}/4"); sys.stderr.flush(); time.sleep(0.2)
sys.stderr.write("\n"); print("x"*760000); print("end")
P
rowlock run --name bars -n 2 -- python /tmp/walk/bar.py > bars.out 2>bars.err; echo rc=$?; cut -c1-60 bars.out | head; cut -c1-80 bars.err | head -5
rowlock logs bars --tail 2 | cut -c1-70 | wc
say 4 local rank
rowlock run --rm -n 2 -- python -c 'import os; print({k: os.environ.get(k) for k in ("RANK","LOCAL_RANK","LOCAL_WORLD_SIZE","GROUP_RANK","WORLD_SIZE")})'
say 5 env
FOO=1 WANDB_API_KEY=sec rowlock run --rm -- python -c 'import os; print(os.environ.get("FOO"), os.environ.get("WANDB_API_KEY"))'
say 6 stdin
echo hi | rowlock run --rm -- cat; echo rc=$?
echo 'print(6*7)' | rowlock run --rm -- python -i; echo rc=$?
rowlock run --rm -- python -c 'breakpoint()' < /dev/null; echo rc=$?
say 7 image cmd, torchrun ranks
cat > tr.py <<'P'
import os; print("hello", os.environ["RANK"], os.environ["LOCAL_RANK"], flush=True)
P
rowlock run --name tr -n 1 --nproc-per-node 2 -- torchrun --standalone --nproc-per-node 2 /tmp/walk/tr.py 2>&1 | tail -5
rowlock logs tr --rank 1; echo rc=$?
rowlock run --name fails -n 1 --nproc-per-node 2 /tmp/walk/tr.py 2>&1 | tail; rowlock logs fails --rank 1; echo rc=$?
say 8 stop keep
timeout -s INT 4 rowlock run --name keepme -- sleep 100; echo rc=$?
rowlock list
rowlock delete --all < /dev/null; echo rc=$?
rowlock run --name keepme -- true; echo rc=$?
rowlock run --replace --name keepme -- sh -c 'echo $ROWLOCK_CHECKPOINT_DIR; touch $ROWLOCK_CHECKPOINT_DIR/a'; echo rc=$?
rowlock run --name again --resume-from keepme -- sh -c 'ls $ROWLOCK_CHECKPOINT_DIR'; echo rc=$?
rowlock describe again | head -40
say 9 refused at submit
rowlock run --working-dir /nope -- true; echo rc=$?
rowlock run -i nosuch/image -- true; echo rc=$?
python -m http.server 18765 --bind 127.0.0.1 >/dev/null 2>&1 & S=$!
rowlock run --rm -- python -c "
import urllib.request as u
print(u.urlopen('http://host.rowlock.internal:18765/', timeout=5).status)" 2>&1 | tail -2
kill $S
say logs after failure
rowlock run --name bad -- sh -c 'echo dying; exit 3'; echo rc=$?
runai logs bad; rowlock logs bad; runai delete distributed bad; rowlock logs bad
rowlock down --yes
