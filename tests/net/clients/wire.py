"""Raw clients for use inside the fence: bytes as an attacker writes them, answers as they come."""
import os
import re
import socket
import ssl
import struct
import sys

PROXY = ("127.0.0.1", 3128)
SOCKS = ("127.0.0.1", 1080)


def read(connection, limit=1 << 20):
    """Everything until the other side closes, resets, or stays silent."""
    whole = b""
    try:
        while len(whole) < limit:
            piece = connection.recv(65536)
            if not piece:
                break
            whole += piece
    except (OSError, ssl.SSLError):
        pass
    return whole


def ask(raw, to=PROXY, wait=12):
    """One connection, one shot; the answer up to the end."""
    with socket.create_connection(to, wait) as connection:
        connection.settimeout(wait)
        try:
            connection.sendall(raw)
        except OSError:
            pass
        return read(connection)


def status(answer):
    """The status of the first response, 0 for none."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return int(found[1]) if found else 0


def responses(answer):
    """How many responses there are."""
    return len(re.findall(rb"HTTP/1\.[01] \d{3} ", answer))


def connect(name, port, wait=12, extra=b""):
    """A tunnel: the socket and the proxy's answer."""
    connection = socket.create_connection(PROXY, wait)
    connection.settimeout(wait)
    target = f"{name}:{port}".encode()
    connection.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n\r\n" + extra)
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(1)
        if not piece:
            break
        head += piece
    return connection, head


def secure(connection, name, authority=None, protocols=None):
    """TLS inside a tunnel. Without a name, none is sent."""
    context = ssl.create_default_context(cafile=authority or os.environ.get("SSL_CERT_FILE"))
    if name is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    return context.wrap_socket(connection, server_hostname=name)


def hello(*extensions):
    """A ClientHello with these extensions after the usual ones, as one record."""
    def extension(kind, body):
        return struct.pack(">HH", kind, len(body)) + body

    usual = extension(43, b"\x02\x03\x04") + extension(10, b"\0\2\0\x1d") + extension(13, b"\0\2\4\3")
    usual += extension(51, b"\0\x24\0\x1d\0\x20" + b"\x09" * 32)
    every = usual + b"".join(extension(kind, body) for kind, body in extensions)
    body = b"\3\3" + b"\7" * 32 + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack(">H", len(every)) + every
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\3\1" + struct.pack(">H", len(message)) + message


def names(*hosts, kind=0):
    """The extension that names servers."""
    listed = b"".join(bytes([kind]) + struct.pack(">H", len(host)) + host.encode() for host in hosts)
    return (0, struct.pack(">H", len(listed)) + listed)


def socks(name, port, wait=12, command=1, kind=3):
    """A SOCKS5 request: the socket and the reply code; -1 when there is none."""
    connection = socket.create_connection(SOCKS, wait)
    connection.settimeout(wait)
    connection.sendall(b"\x05\x01\x00")
    connection.recv(2)
    address = socket.inet_aton(name) if kind == 1 else bytes([len(name)]) + name.encode()
    connection.sendall(bytes([5, command, 0, kind]) + address + struct.pack(">H", port))
    reply = connection.recv(10)
    return connection, reply[1] if len(reply) > 1 else -1


def look_up(name, kind=1, tcp=False):
    """A question to the resolver: its error code and the addresses it gave."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    question = struct.pack(">HHHHHH", 4242, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)
    if tcp:
        with socket.create_connection(("127.0.0.1", 53), 12) as connection:
            connection.sendall(struct.pack(">H", len(question)) + question)
            answer = connection.recv(4096)[2:]
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(12)
            connection.sendto(question, ("127.0.0.1", 53))
            answer = connection.recv(4096)
    count = struct.unpack(">H", answer[6:8])[0]
    at = len(question)
    found = []
    for _ in range(count):
        size = struct.unpack(">H", answer[at + 10:at + 12])[0]
        if struct.unpack(">H", answer[at + 2:at + 4])[0] == 1:
            found.append(socket.inet_ntoa(answer[at + 12:at + 16]))
        at += 12 + size
    return answer[3] & 15, found


def outcome(what):
    """The result of a call, or the name of what it raised."""
    try:
        return what()
    except Exception as error:  # noqa: BLE001 - the name of any refusal is the result
        return type(error).__name__
