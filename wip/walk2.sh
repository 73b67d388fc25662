set -u
B=/work/h/images/.venv/bin; export PATH=$B:$PATH
unset XDG_CACHE_HOME
export ROWLOCK_DATA_DIR=/var/walk2/data HOME=/var/walk2/home; mkdir -p $HOME /var/walk2/w; cd /var/walk2/w
say() { echo; echo "=== $* $(date +%T)"; }
touch $HOME/.bashrc
rowlock up -d --host-ports 18765 2>&1 | tail -2
say 1 build
mkdir -p c1; cat > c1/Dockerfile <<'D'
ARG BASE=python
FROM $BASE AS build
SHELL ["/bin/bash","-c"]
RUN mkdir -p /out && echo built > /out/bin
FROM python
LABEL a=b
EXPOSE 80
HEALTHCHECK CMD true
RUN groupadd -g 4343 crewx && useradd -m -u 4343 -g crewx pilotx
RUN rm -rf /opt && echo hi >> ~/.bashrc
COPY --from=build /out/bin /srv/code/cfg.txt
COPY . /ctx/
RUN <<EOF
touch /usr/local/x
echo made > /made-by-run
EOF
ENV PATH=/x/bin:$PATH
WORKDIR /workspace
USER pilotx
VOLUME /data
STOPSIGNAL SIGINT
CMD ["sh","-c","cat /made-by-run /srv/code/cfg.txt; echo $PATH; pwd; id; which python; ls /ctx /usr/local/x; echo $HOME; cat ~/.bashrc | tail -1; touch ~/mine && echo home-ok"]
D
printf 'secret\n*.log\n!keep.log\n' > c1/.dockerignore; touch c1/secret c1/a.log c1/keep.log
time rowlock build -t walk:1 c1; echo rc=$?
time rowlock build -t walk:1 c1 | tail -2
echo x >> c1/keep.log; time rowlock build -t walk:1 c1 | tail -1
ls /usr/local/x; grep -c pilotx /etc/passwd; cat $HOME/.bashrc; ls -d /opt
rowlock run -i walk:1 --rm; echo rc=$?
printf 'FROM python\nRUN apt-get update && apt-get install -y hello\n' > Dockerfile.apt; mkdir -p c3; mv Dockerfile.apt c3/Dockerfile; rowlock build -t walk:apt c3 2>&1 | tail -2; rowlock run -i walk:apt --rm -- hello; which hello
say 3 bars
cat > bar.py <<'P'
import sys,time
for i in range(5):
    sys.stderr.write(f"\r{i}/4"); sys.stderr.flush(); time.sleep(0.1)
sys.stderr.write("\n"); print("end")
P
rowlock run -n 2 --name bars -- python bar.py
say 4 archive
rowlock run --name bad -- python -c 'import sys; print("step=1 loss=2.0"); print("step=2 loss=1.0"); sys.exit("boom")'; echo rc=$?
rowlock delete --yes bad; rowlock logs bad; runai logs bad
rowlock history; rowlock show bad; rowlock plot bad; rowlock plot bad --svg /var/walk2/w/x.svg
rowlock rerun bad; echo rc=$?
rowlock diff bad~1 bad
rowlock suspend bars; rowlock logs bars --tail 1
rowlock top; runai top jobs; runai top nodes
rowlock tensorboard; echo rc=$?
rowlock down --yes; rowlock up -d 2>&1 | head -1; rowlock logs bad --tail 2; rowlock logs bars --tail 2
say 5 source
mkdir -p g; cd g; git init -q .; printf '.cache\n' > .gitignore; echo 'print("v1")' > t.py; git add -A; git -c user.name=a -c user.email=a@b commit -qm x
rowlock run --source . --name src --rm -- python t.py; sed -i s/v1/v2/ t.py; time rowlock run --source . --rm --name src -- python t.py; rowlock run --in-place --rm -- python t.py; cd ..
say 6 venv
python -m venv --without-pip v; VIRTUAL_ENV=$PWD/v PATH=$PWD/v/bin:$PATH rowlock run --rm -- python -c 'import sys; print(sys.prefix)'
say 7 host port
python -m http.server 18765 --bind 127.0.0.1 >/dev/null 2>&1 & S=$!
rowlock down --yes; rowlock up -d --host-ports 18765 | head -1
rowlock run --rm -- python -c "
import urllib.request as u
print(u.urlopen('http://host.rowlock.internal:18765/', timeout=5).status)"
kill $S
say 8 completion
rowlock completion bash | head -3; rowlock completion fish | head -2; rowlock completion zsh | head -2
say 9 replace resume
rowlock run --name a1 -- sh -c 'touch $ROWLOCK_CHECKPOINT_DIR/a'; rowlock run --replace --name a1 -- true; rowlock run --name a2 --resume-from a1~1 -- sh -c 'ls $ROWLOCK_CHECKPOINT_DIR'; 
rowlock notebook </dev/null; echo rc=$?
rowlock run -d --name dd -- sleep 5
rowlock down --yes
