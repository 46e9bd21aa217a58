"""A server in front of quantd that spoils each `every`-th answer. The tests use it to see whether
load.sh notices."""
import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("flip", "shorter", "longer", "truncate", "unavailable", "close", "hang", "crossed",
          "header", "shift")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_arguments):
        pass

    def ask(self, method, body=None):
        """Asks the real server. Returns (status, header fields, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        names = ("Inference-Header-Content-Length",)
        headers = {name: self.headers[name] for name in names if name in self.headers}
        connection.request(method, self.path, body, headers)
        answer = connection.getresponse()
        names = names + ("Server-Timing", "Content-Type")
        result = (answer.status, {name: answer.headers[name] for name in names
                                  if name in answer.headers}, answer.read())
        connection.close()
        return result

    def send(self, status, headers, body, length=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send(*self.ask("GET"))

    def do_POST(self):
        request = self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, body = self.ask("POST", request)
        server = self.server
        with server.lock:
            server.count += 1
            spoil = server.count % server.every == 0
            is_behind = server.count > server.every and server.count % server.every == 1
            server.answers[request] = (status, headers, body)
            others = [answer for body_of, answer in server.answers.items() if body_of != request]
        if is_behind and server.fault == "shift":
            self.send(status, headers, body[1:])
        elif not spoil:
            self.send(status, headers, body)
        elif server.fault == "flip":
            # Changes a digit of JSON or a bit of a number, which is within the data in both forms.
            spoilt = bytearray(body)
            place = max(i for i, byte in enumerate(body) if byte not in b"]}")
            spoilt[place] ^= 1
            self.send(status, headers, bytes(spoilt))
        elif server.fault == "shorter":
            self.send(status, headers, body[:-1])
        elif server.fault == "shift":  # joined, this answer and the next are correct
            self.send(status, headers, body + body[:1])
        elif server.fault == "longer":
            self.send(status, headers, body + b"\0")
        elif server.fault == "truncate":
            self.send(status, headers, body[:-1], len(body))
            self.close_connection = True
        elif server.fault == "unavailable":
            self.send(503, {}, b'{"error":"full"}')
        elif server.fault == "close":
            self.close_connection = True
        elif server.fault == "hang":
            time.sleep(3)
            self.close_connection = True
        elif server.fault == "crossed":
            self.send(*others[0])
        elif server.fault == "header":
            self.send(status, {**headers, "Inference-Header-Content-Length": "7"}, body)


class FaultyServer(ThreadingHTTPServer):
    """Spoils every answer to a POST whose number is a multiple of `every`. `port`: quantd's port.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, fault, every):
        assert fault in FAULTS
        super().__init__(("127.0.0.1", 0), Handler)
        self.port, self.fault, self.every = port, fault, every
        self.count, self.answers, self.lock = 0, {}, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server_address[1]

    def stop(self):
        self.shutdown()
        self.server_close()
