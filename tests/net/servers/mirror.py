"""Package registries of the lab: one package, as npm, pip, cargo and apt fetch it. Everything is made in memory.

    /npm/…     a packument and its tarball
    /pip/…     a simple index and a wheel
    /cargo/…   a sparse index and a crate
    /apt/…     a repository without a signature, and a package
"""
import base64
import hashlib
import io
import json
import tarfile
import zipfile


def tarball(files):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return whole.getvalue()


def wheel():
    whole = io.BytesIO()
    about = "lab_package-1.0.dist-info"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("lab_package.py", "WORD = 'from the lab'\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: lab-package\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", f"lab_package.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    return whole.getvalue()


def deb(control):
    """A Debian package: an `ar` archive of three files."""
    members = {"debian-binary": b"2.0\n", "control.tar.gz": tarball({"./control": control}),
               "data.tar.gz": tarball({"./usr/share/lab-package/word": "from the lab\n"})}
    whole = b"!<arch>\n"
    for name, body in members.items():
        whole += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
    return whole


NPM = tarball({"package/package.json": json.dumps({"name": "lab-package", "version": "1.0.0"}),
               "package/index.js": "module.exports = 'from the lab'\n"})
WHEEL = wheel()
CRATE = tarball({"lab-package-1.0.0/Cargo.toml": '[package]\nname = "lab-package"\nversion = "1.0.0"\nedition = "2021"\n',
                 "lab-package-1.0.0/src/lib.rs": ""})

CONTROL = "Package: lab-package\nVersion: 1.0\nArchitecture: all\nMaintainer: lab <lab@lab.test>\nDescription: from the lab\n"
DEB = deb(CONTROL)


def npm(base, rest):
    if rest == "lab-package":
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(NPM).digest()).decode()
        dist = {"tarball": f"{base}/npm/lab-package/-/lab-package-1.0.0.tgz", "integrity": integrity}
        version = {"name": "lab-package", "version": "1.0.0", "dist": dist}
        whole = {"name": "lab-package", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        return json.dumps(whole).encode(), "application/json"
    if rest.endswith(".tgz"):
        return NPM, "application/octet-stream"
    return None


def pip(_base, rest):
    if rest == "simple/lab-package/":
        digest = hashlib.sha256(WHEEL).hexdigest()
        link = f'<a href="../../lab_package-1.0-py3-none-any.whl#sha256={digest}">lab_package-1.0-py3-none-any.whl</a>'
        return f"<!DOCTYPE html><html><body>{link}</body></html>".encode(), "text/html"
    if rest.endswith(".whl"):
        return WHEEL, "application/octet-stream"
    return None


def cargo(base, rest):
    if rest == "index/config.json":
        return json.dumps({"dl": f"{base}/cargo/crates"}).encode(), "application/json"
    if rest == "index/la/b-/lab-package":
        line = {"name": "lab-package", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(CRATE).hexdigest(),
                "features": {}, "yanked": False}
        return (json.dumps(line) + "\n").encode(), "text/plain"
    if rest.endswith("/download"):
        return CRATE, "application/octet-stream"
    return None


def apt(_base, rest):
    if rest.startswith("dists/lab/main/binary-") and rest.endswith("/Packages"):
        digest = hashlib.sha256(DEB).hexdigest()
        return f"{CONTROL}Filename: pool/lab-package_1.0_all.deb\nSize: {len(DEB)}\nSHA256: {digest}\n\n".encode(), "text/plain"
    if rest.endswith(".deb"):
        return DEB, "application/octet-stream"
    return None


def answer(scheme, host, path):
    """Body and kind, or nothing where there is no such thing."""
    first, _, rest = path.strip("/").partition("/")
    if path.endswith("/"):
        rest += "/"
    return {"npm": npm, "pip": pip, "cargo": cargo, "apt": apt}[first](f"{scheme}://{host}", rest)
