"""The web servers of the lab: what they are asked is written down, and some paths misbehave on purpose.

Every request becomes one line of JSON in the log, so that a test can say what reached a server and what did not.
"""
import base64
import gzip
import hashlib
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

import mirror
import models

LOCK = threading.Lock()
MODEL_USAGE = {"input_tokens": 1000, "output_tokens": 500}


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection. `settings` is set by `serve`."""

    protocol_version = "HTTP/1.1"
    settings = None

    def log_message(self, *_):
        pass

    def version_string(self):
        return "lab"

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            whole = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                chunk = self.rfile.read(size)
                self.rfile.readline()
                if not size:
                    return whole
                whole += chunk
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def record(self, body):
        sni = getattr(self.connection, "lab_name", None)
        line = {
            "face": self.settings["face"],
            "sni": sni,
            "method": self.command,
            "path": self.path,
            "host": self.headers.get("Host", ""),
            "headers": [[k, v] for k, v in self.headers.items()],
            "body": body[:4096].decode("latin-1"),
            "length": len(body),
        }
        with LOCK, open(self.settings["log"], "a") as log:
            log.write(json.dumps(line) + "\n")

    def answer(self, status, body, kind="text/plain", extra=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in extra:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def stream(self, pieces, kind="text/plain", pause=0.0):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(pause)
        self.wfile.write(b"0\r\n\r\n")

    def everything(self):
        try:
            body = self.body()
            self.record(body)
            self.route(urllib.parse.urlsplit(self.path), body)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError, ValueError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = do_TRACE = everything
    do_MKCOL = do_MOVE = do_PROPPATCH = do_LOCK = everything

    def route(self, url, body):
        if models.answer(self, url, body):
            return
        first = url.path.split("/")[1]
        known = {
            "echo": self.echo,
            "reflect": self.reflect,
            "redirect": self.redirect,
            "bytes": self.bytes,
            "trickle": self.trickle,
            "flood": self.flood,
            "ws": self.websocket,
            "git": self.git,
            "v1": self.model,
            "npm": self.packages,
            "pip": self.packages,
            "cargo": self.packages,
            "apt": self.packages,
        }
        handler = known.get(first)
        if handler:
            handler(url, body)
        else:
            self.answer(200, b"hello from the lab\n")

    def echo(self, _url, body):
        """Everything it was told, as JSON: what an error page of a careless server shows."""
        told = {
            "method": self.command,
            "path": self.path,
            "headers": dict(self.headers.items()),
            "body": body.decode("latin-1"),
        }
        self.answer(200, json.dumps(told).encode(), "application/json")

    def reflect(self, url, _body):
        """The credential back, cut in two, or encoded."""
        token = (self.headers.get("Authorization") or self.headers.get("x-api-key") or "none").split()[-1].encode()
        how = url.path.rsplit("/", 1)[-1]
        if how == "cut":
            middle = len(token) // 2
            self.stream([b"token: " + token[:middle], token[middle:] + b" end\n"], pause=0.05)
        elif how == "base64":
            self.answer(200, base64.b64encode(token))
        elif how == "gzip":
            self.answer(200, gzip.compress(token), extra=[("Content-Encoding", "gzip")])
        elif how == "br":
            # Stored, not compressed: a window of 16 bits, one block as it is, an empty last one.
            text = b"token: " + token + b" end"
            block = ((len(text) - 1) << 4 | 1 << 20).to_bytes(3, "little") + text + b"\x03"
            self.answer(200, block, extra=[("Content-Encoding", "br")])
        elif how == "wrapped":
            self.answer(200, base64.encodebytes(b"user:" + token + b":" + b"x" * 200) + b"end\n")
        elif how == "unicode":
            self.answer(200, b"".join(b"\\u%04x" % byte for byte in token) + b" end\n", "application/json")
        elif how == "events":
            pieces = [b"data: " + token[:9], b"\n\nevent: more\ndata: " + token[9:20], b"\n\ndata: " + token[20:] + b"\n\n"]
            self.stream(pieces + [b"data: end\n\n"], "text/event-stream", 0.02)
        elif how == "name":
            self.answer(200, b"see the name, end\n", extra=[("X-" + token.decode(), "1"), ("X-Kept", "1")])
        elif how == "ranges":
            self.answer(206, token[5:], "multipart/byteranges; boundary=x", [("Content-Range", "bytes 5-/99")])
        elif how == "unknown":
            self.answer(200, token, extra=[("Content-Encoding", "compress")])
        elif how == "header":
            self.answer(200, b"see the header\n", extra=[("X-Seen", token.decode())])
        elif how == "error":
            self.answer(500, b"bad token " + token)
        else:
            self.answer(200, token)

    def redirect(self, url, _body):
        to = urllib.parse.parse_qs(url.query)["to"][0]
        self.answer(302, b"", extra=[("Location", to)])

    def bytes(self, url, _body):
        left = int(url.path.split("/")[2])
        self.send_response(200)
        self.send_header("Content-Length", str(left))
        self.end_headers()
        block = b"\0" * 65536
        while left:
            left -= self.wfile.write(block[: min(left, len(block))])

    def trickle(self, _url, _body):
        self.stream((b"." for _ in range(100)), pause=0.1)

    def flood(self, _url, _body):
        """Never ends by itself."""
        self.stream(b"x" * 65536 for _ in iter(int, 1))

    def websocket(self, _url, _body):
        if self.headers.get("Upgrade", "").lower() != "websocket":
            self.answer(426, b"websocket only\n")
            return
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            size = head[1] & 127
            mask = self.rfile.read(4)
            text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([0x81, len(text)]) + text)
            self.wfile.flush()

    def git(self, url, body):
        """git's own server program, as a CGI."""
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": self.settings["git"],
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "3",
            "GIT_CONFIG_KEY_2": "receive.advertisePushOptions",
            "GIT_CONFIG_VALUE_2": "true",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "http.receivepack",
            "GIT_CONFIG_VALUE_1": "true",
            "PATH_INFO": url.path[len("/git"):],
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_USER": "lab",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        status, extra = 200, []
        for line in head.decode().splitlines():
            name, _, value = line.partition(": ")
            if name == "Status":
                status = int(value.split()[0])
            elif name == "Content-Type":
                kind = value
            else:
                extra.append((name, value))
        self.answer(status, content, kind if b"Content-Type" in head else "text/plain", extra)

    def packages(self, url, _body):
        """A package registry."""
        scheme = "https" if self.settings["face"] == "tls" else "http"
        found = mirror.answer(scheme, self.headers.get("Host", ""), url.path)
        if found:
            self.answer(200, *found)
        else:
            self.answer(404, b"no such package\n")

    def model(self, url, body):
        """A model's API: the usage fields of the two families, streamed and whole."""
        asked = json.loads(body or b"{}")
        name = asked.get("model", "lab-model")
        if url.path == "/v1/messages":
            self.anthropic(name, asked.get("stream"))
        elif url.path == "/v1/chat/completions":
            self.openai(name, asked.get("stream"))
        else:
            self.answer(200, b"hello from the lab\n")

    def anthropic(self, name, streamed):
        whole = {"type": "message", "model": name, "content": [], "usage": MODEL_USAGE}
        if not streamed:
            self.answer(200, json.dumps(whole).encode(), "application/json")
            return
        start = {"type": "message_start", "message": {**whole, "usage": {"input_tokens": 1000, "output_tokens": 1}}}
        delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 500}}
        events = [start, {"type": "content_block_delta", "delta": {"text": "hi"}}, delta, {"type": "message_stop"}]
        self.stream((b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events),
                    "text/event-stream", 0.02)

    def openai(self, name, streamed):
        usage = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
        if not streamed:
            whole = {"object": "chat.completion", "model": name, "choices": [], "usage": usage}
            self.answer(200, json.dumps(whole).encode(), "application/json")
            return
        chunks = [{"model": name, "choices": [{"delta": {"content": "hi"}}]}, {"model": name, "choices": [], "usage": usage}]
        self.stream([b"data: %s\n\n" % json.dumps(c).encode() for c in chunks] + [b"data: [DONE]\n\n"],
                    "text/event-stream", 0.02)


class Server(http.server.ThreadingHTTPServer):
    """Many connections at once; a broken one is nobody's business."""

    daemon_threads = True
    request_queue_size = 1024
    context = None

    def handle_error(self, *_):
        pass

    def finish_request(self, request, client_address):
        # The handshake belongs to the connection's own thread: a silent client must not stop the others.
        if self.context:
            request.settimeout(20)
            request = self.context.wrap_socket(request, server_side=True)
            request.settimeout(None)
        try:
            self.RequestHandlerClass(request, client_address, self)
        finally:
            if self.context:
                request.close()


def serve(settings, context=None, at=("127.0.0.1", 0)):
    """Starts a server, on a free port unless told otherwise, and returns the port."""
    handler = type("LabHandler", (Handler,), {"settings": settings})
    server = Server(at, handler)
    if context:
        def note(connection, name, _context):
            connection.lab_name = name
        context.sni_callback = note
        server.context = context
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def sink():
    """A TCP server that takes everything and says what it got so far: for bytes that must not arrive."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            connection, _ = listener.accept()
            connection.sendall(b"220 lab sink\r\n")
            connection.close()

    threading.Thread(target=run, daemon=True).start()
    return listener.getsockname()[1]
