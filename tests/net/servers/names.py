"""Answers that no honest name server gives: errors, silence, addresses that change, forged and mixed answers.

dnsmasq, the real server of the lab, forwards one zone to this one.
"""
import socket
import struct
import threading

TURNS = {}


def addresses(first):
    """The addresses for a name by its first label; None is silence, a number an error."""
    TURNS[first] = TURNS.get(first, 0) + 1
    kind = first.split("-")[0]
    odd = TURNS[first] % 2
    return {
        "servfail": 2,
        "refused": 5,
        "silent": None,
        "empty": [],
        "flip": ["127.0.0.1"] if odd else ["10.1.2.3"],
        "mixed": ["127.0.0.1", "10.1.2.3"],
        "public": ["127.0.0.1"],
        "private": ["10.1.2.3"],
        "link": ["169.254.1.1"],
        "metadata": ["169.254.169.254"],
        "zero": ["0.0.0.0"],
        "other": ["127.0.0.2"],
        "multicast": ["224.0.0.1"],
        "six": ["::1"],
        "mapped": ["::ffff:10.1.2.3"],
    }.get(kind, ["127.0.0.1"])


def reply(question, found, kind):
    """The answer section for one question."""
    code = found if isinstance(found, int) else 0
    wanted = [a for a in (found if isinstance(found, list) else []) if (":" in a) == (kind == 28)]
    packet = question[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(wanted), 0, 0)
    end = 12
    while question[end]:
        end += question[end] + 1
    packet += question[12:end + 5]
    for address in wanted:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        raw = socket.inet_pton(family, address)
        packet += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(raw)) + raw
    return packet


def serve():
    """Starts it on a free port and returns the port."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))

    def run():
        while True:
            question, who = server.recvfrom(4096)
            if len(question) < 17:
                continue
            size = question[12]
            first = question[13:13 + size].decode("latin-1").lower()
            end = 12
            while question[end]:
                end += question[end] + 1
            kind = struct.unpack(">H", question[end + 1:end + 3])[0]
            # Only questions for an address turn the wheel: a client asks for both families.
            found = addresses(first) if kind in (1, 28) and not (kind == 28 and first.startswith("flip")) else []
            if found is not None:
                server.sendto(reply(question, found, kind), who)

    threading.Thread(target=run, daemon=True).start()
    return server.getsockname()[1]
