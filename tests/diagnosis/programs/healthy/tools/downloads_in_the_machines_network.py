# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# after = "downloading"
# pod = { hostNetwork = true }
# ///
"""Pods in the machine's network: rank 0 reads its data slowly, one long call that uses no CPU, while rank 1 waits in a barrier."""
import http.server
import threading
import time
import urllib.request

import torch.distributed as dist


class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        for _ in range(90):
            self.wfile.write(bytes(1024))
            time.sleep(0.33)


dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("downloading", flush=True)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{server.server_port}/") as answer:
        print(len(answer.read()), "bytes", flush=True)
dist.barrier()
dist.destroy_process_group()
