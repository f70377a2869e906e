"""The outside world of the network tests, on loopback and on ports of its own.

    lab.py DIRECTORY        prints one line of JSON about what runs where, and ends when standard input does

It makes its certificates, starts TLS and plain web servers, dnsmasq, Squid and an SSH server, and takes them all down
again. Nothing outlives it: it holds the process ids of what it started and kills those.
"""
import atexit
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import names
import web

PROCESSES = []


def stop(place):
    for process in PROCESSES:
        process.kill()
        process.wait()
    shutil.rmtree(place, ignore_errors=True)


def start(place, name, command, **more):
    log = open(place / f"{name}.log", "ab")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more)
    PROCESSES.append(process)
    return process


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listening(place, name, command):
    """Starts what `command(port)` says and waits until it listens. Between finding a free port and taking it somebody
    else can take it: then it ends, and is started again at another."""
    for _ in range(5):
        port = free_port()
        process = start(place, name, command(port))
        # A busy machine takes its time to start a server.
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 0.1).close()
                return port
            except OSError:
                time.sleep(0.02)
    sys.exit(f"{name} does not listen: see {place}/{name}.log")


def certify(place):
    """An authority of the lab, and a certificate under it for every name of the lab."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=lab authority",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=lab.test")
    (place / "server.ext").write_text(
        "subjectAltName=DNS:lab.test,DNS:*.lab.test,DNS:*.odd.test,DNS:api.anthropic.com,DNS:api.openai.com\n"
        "extendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-out", "server.pem", "-extfile", "server.ext")


def dnsmasq(place, odd_port, usual):
    user = ["--user=" + os.environ.get("USER", "root")] if os.geteuid() == 0 else []
    return listening(place, "dnsmasq", lambda port: [
        shutil.which("dnsmasq", path=os.environ["PATH"] + ":/usr/sbin"), "--keep-in-foreground", f"--port={port}",
        "--listen-address=127.0.0.1", "--bind-interfaces", "--no-resolv", "--no-hosts", "--conf-file=/dev/null",
        "--pid-file", "--cache-size=0", "--log-queries", f"--log-facility={place}/queries.log",
        "--address=/lab.test/127.0.0.1", "--address=/api.anthropic.com/127.0.0.1",
        "--address=/api.openai.com/127.0.0.1", f"--server=/odd.test/127.0.0.1#{odd_port}",
        f"--address=/usual.test/{usual or '127.0.0.1'}", *user])


def squid(place, dns_port):
    program = shutil.which("squid", path=os.environ["PATH"] + ":/usr/sbin")
    if not program:
        return None
    home = place / "squid"
    home.mkdir()
    home.chmod(0o777)
    known = "\n".join(f"127.0.0.1 {name}.lab.test" for name in ("chained", "chained-plain", "refused-by-squid"))
    (home / "hosts").write_text(known + "\n")

    def command(port):
        (home / "squid.conf").write_text(f"""
http_port 127.0.0.1:{port}
acl refused dstdomain refused-by-squid.lab.test
acl lab dstdomain .lab.test
http_access deny refused
http_access allow lab
http_access deny all
hosts_file {home}/hosts
cache deny all
access_log stdio:{home}/access.log
logfile_rotate 0
buffered_logs off
cache_log {home}/cache.log
pid_filename none
coredump_dir {home}
""")
        return [program, "-N", "-f", str(home / "squid.conf")]

    return listening(place, "squid", command)


def ssh(place):
    """An SSH server that lets nobody in: that it refuses a key shows that it was reached."""
    program = shutil.which("dropbear", path=os.environ["PATH"] + ":/usr/sbin")
    if not program:
        return None
    home = place / "ssh"
    home.mkdir(mode=0o700)
    subprocess.run(["dropbearkey", "-t", "ed25519", "-f", str(home / "host")], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return listening(place, "dropbear", lambda port: [
        program, "-F", "-E", "-s", "-r", str(home / "host"), "-p", f"127.0.0.1:{port}"])


def usual_port(settings):
    """A server on the web's own port, at an address of the loopback net that nobody else uses; only root may."""
    number = os.getpid()
    address = f"127.77.{number >> 8 & 255}.{number & 255}"
    try:
        web.serve({**settings, "face": "usual"}, at=(address, 80))
    except PermissionError:
        return None
    return address


def repository(place):
    """A bare repository with one commit on main, and one on a branch beside it."""
    root = place / "git"
    root.mkdir()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
    identity = {"GIT_AUTHOR_NAME": "lab", "GIT_AUTHOR_EMAIL": "lab@lab.test", "GIT_COMMITTER_NAME": "lab",
                "GIT_COMMITTER_EMAIL": "lab@lab.test", "GIT_CONFIG_GLOBAL": "/dev/null"}
    env = {**os.environ, **identity}
    for name in ("project.git", "foreign.git"):
        bare = root / name
        subprocess.run(["git", "init", "--bare", "-q", "-b", "main", str(bare)], env=env, **quiet)
        subprocess.run(["git", "-C", str(bare), "config", "http.receivepack", "true"], env=env, **quiet)
        seed = place / f"seed-{name}"
        subprocess.run(["git", "init", "-q", "-b", "main", str(seed)], env=env, **quiet)
        for word in ("one", "two"):
            (seed / "file").write_text(word + "\n")
            subprocess.run(["git", "-C", str(seed), "add", "."], env=env, **quiet)
            subprocess.run(["git", "-C", str(seed), "commit", "-q", "-m", word], env=env, **quiet)
        subprocess.run(["git", "-C", str(seed), "push", "-q", str(bare), "main"], env=env, **quiet)
    return root


def main():
    place = pathlib.Path(sys.argv[1]).resolve()
    place.chmod(0o755)
    atexit.register(stop, place)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    certify(place)
    log = place / "requests.jsonl"
    log.touch()
    settings = {"log": str(log), "git": str(repository(place))}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "server.pem", place / "server.key")
    usual = usual_port(settings)
    dns = dnsmasq(place, names.serve(), usual)
    print(json.dumps({
        "tls": web.serve({**settings, "face": "tls"}, context),
        "plain": web.serve({**settings, "face": "plain"}),
        "sink": web.sink(),
        "usual": usual,
        "dns": dns,
        "squid": squid(place, dns),
        "ssh": ssh(place),
    }), flush=True)
    sys.stdin.read()


main()
