"""Into running pods and out of them: `exec`, `attach`, `port-forward` (`exec_commands.py`) over websockets, and `logs` (`logs.py`)."""
