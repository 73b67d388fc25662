"""Into running pods: logs (read, tail, follow), exec, attach, connections to ports.

May import `pod`, `network`, `runtime`, `shim`. The API server's side is in `apiserver/streams`. Begin with `logs.py`, then `exec_sessions.py`.
"""
