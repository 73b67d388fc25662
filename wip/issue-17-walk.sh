export HOME=/tmp/w17/home PATH=/work/h/me/.venv/bin:/usr/bin:/bin; rm -rf $HOME; mkdir -p $HOME; cd $HOME
unset KUBECONFIG
t() { echo; echo "\$ $*"; timeout 60 "$@" </dev/null 2>&1 | head -${N:-14} | cut -c1-220; echo "[rc ${PIPESTATUS[0]}]"; }
t rowlock up -d --simulated-gpus 1
t rowlock project create team-a --gpus 1
t runai login
t runai config project team-a
t runai submit-dist pytorch dist-train1 --workers=2 -g 0.1 -i /kubeflow/pytorch-dist-mnist:latest
t runai list jobs
t runai distributed list
t runai describe job train1
t runai training describe train1
t runai distributed submit dist-train1 --framework PyTorch -i /kubeflow/pytorch-dist-mnist:latest --workers 2 --gpu-request-type portion --gpu-portion-request 0.1 --gpu-devices-request 1 --cpu-memory-request 100M
t runai logs dist-train1 --pod dist-train1-worker-0
t runai delete job dist-train1
t runai training delete dist-train1
echo ======= odd
t runai submit-dist pytorch
t runai submit-dist pytorch x
t runai submit-dist pytorch x -i img --workers=-1
t runai submit-dist pytorch x -i img --workers=two
t runai submit-dist pytorch x -i img --workers=99999999999999999999
t runai submit-dist pytorch x -i img -g banana
t runai submit-dist pytorch x -i img -g -1
t runai submit-dist pytorch x -i img -g 0.1.2
t runai submit-dist pytorch x -i img -g nan
t runai submit-dist pytorch x -i img -g 1e400
t runai submit-dist pytorch X_Y -i img
t runai submit-dist pytorch "" -i img
t runai submit-dist pytorch "ü" -i img
t runai submit-dist pytorch x -i ""
t runai submit-dist pytorch x -i "a b"
t runai submit-dist pytorch x -i img -e FOO
t runai submit-dist pytorch x -i img -e =x
t runai submit-dist pytorch x -i img --cpu 1x
t runai submit-dist pytorch x -i img --memory lots
t runai submit-dist pytorch x -i img --wrokers 2
t runai submit-dist pytorch x -i img --pvc nonsense
t runai submit-dist pytorch x -i img -v nonsense
t runai submit-dist pytorch x -i img --run-as-uid root
t runai submit-dist pytorch x -i img --port abc
t runai submit-dist pytorch x -i img --toleration foo:bar:baz:qux
t runai submit-dist pytorch x -i img -p nobody
t runai submit-dist torch x -i img
t runai submit x -i img --completions 3
t runai submit x -i img --attach --interactive --jupyter
t runai distributed submit x --framework Torch -i img
t runai distributed submit x -f PyTorch -i img --gpu-request-type half
t runai distributed submit x -f PyTorch -i img --gpu-portion-request 1.5 --gpu-request-type portion --gpu-devices-request 1
t runai distributed submit x -f PyTorch -i img --gpu-memory-request 1Z
t runai distributed submit x -f PyTorch -i img --cpu-core-request abc
t runai distributed submit x -f PyTorch -i img --existing-pvc foo=bar
t runai distributed submit x -f PyTorch -i img --annotation foo
t runai distributed submit x -f PyTorch -i img --image-pull-policy Sometimes
t runai distributed submit x -f PyTorch -i img --workers 2 --workers 3
t runai distributed list --output xml
t runai distributed list -o json
t runai training list --status Bogus
t runai workload list --type x
t runai project list --json
t runai node list
t runai nodepool list
t runai department list
t runai describe project team-a
t runai list jobs -p nope
t runai logs nope
t runai exec nope -- ls
t runai suspend nope
t runai resume nope
t runai delete job
t runai top nodes
t runai top jobs
t runai whoami
t runai version
t runai kubeconfig set
t runai config bogus
t runai bogus
t runai training pytorch submit p1 -i img --workers 1 --backoff-limit -3
t runai training pytorch submit p1 -i img --clean-pod-policy Never
t runai template list
t runai report list
t runai workspace submit w1 -i img --external-url foo=bar
t runai workspace list
t runai pvc list
t runai distributed describe w1
t rowlock down --yes
