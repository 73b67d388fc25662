"""The embedded cluster's kubelet: pods of this machine's nodes become processes or containers, and their facts become status.

`pod` decides (pure), `worker` does; `shim` and `warm` run inside the processes of pods and import the standard library
only; the other rooms are the parts a kubelet has. May import: the words, deciding rooms, `controllers`. Begin with
`worker/kubelet.py`, then `pod/sync.py` and `shim/shim.py`.
"""
