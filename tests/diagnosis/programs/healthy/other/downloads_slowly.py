# /// verdict
# after = "downloading"
# ///
"""Both ranks read a stream of two kilobytes a second from a server of their own."""
import http.server
import threading
import time
import urllib.request


class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        for _ in range(45):
            self.wfile.write(bytes(1024))
            time.sleep(0.33)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("downloading", flush=True)
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{server.server_port}/") as answer:
    print(len(answer.read()), "bytes", flush=True)
