"""Images of containers made from this machine's own packages, as `docker import` and `podman import` read them: no registry is asked.

Which packages belong to a program is read from dpkg's own dependencies, so that it fits whatever release of Debian the tests run on.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a project's image has; one with perl in the place of Python; and one with neither, not even bash.
PACKAGES = {
    "base": (
        "bash", "coreutils", "dash", "sed", "grep", "findutils", "util-linux", "procps", "git", "python3", "perl-base", "netbase", "ca-certificates",
        "curl", "hostname", "make",
    ),
    "perl": ("bash", "coreutils", "dash", "sed", "grep", "util-linux", "perl-base"),
    "bare": ("coreutils", "dash"),
}  # fmt: skip
# What git depends on for its lesser commands, and what nobody runs in a test: most of the size.
LEFT_OUT = frozenset({"perl", "liberror-perl", "git-man", "debconf", "cdebconf", "tzdata", "dpkg", "tar", "install-info"})
UNWANTED = re.compile(
    r"/usr/share/(doc|man|locale|info|lintian|bug|i18n|perl|zsh|fish|bash-completion|python3|gitweb|doc-base)(/|$)|/usr/lib/python3/dist-packages"
    r"|/usr/(bin|lib/git-core)/(git-(http-push|imap-send|http-fetch|http-backend|daemon|shell|sh-i18n--envsubst)|scalar)$"
)
DIRECTORIES = ("dev", "etc", "home", "proc", "run", "sys", "tmp", "var", "var/tmp")
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def pack(kind: str, place: Path) -> Path:
    """The image of that kind as an uncompressed tar below a directory. A second or two; a package that is missing is a LookupError."""
    tar = place / f"{kind}.tar"
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
        done = set[str]()
        for path in sorted(_files(_closure(PACKAGES[kind]))):
            _add(archive, path, done)
        for top in ("bin", "sbin", "lib", "lib64"):  # also where no package of the kind says so
            if os.path.islink(f"/{top}"):
                _add(archive, f"/{top}", done)
        for name in DIRECTORIES:
            if name not in done:
                _make(archive, name, tarfile.DIRTYPE, mode=0o1777 if name.endswith("tmp") else 0o755)
        for name, text in FILES.items():  # no package's own: those are made when a machine is installed
            _make(archive, name, tarfile.REGTYPE, text)
    return tar


def _closure(wanted: Iterable[str]) -> set[str]:
    """The packages and whatever they depend on, as dpkg names them on the command line."""
    form = "${Package}|${binary:Package}|${Provides}|${Pre-Depends}, ${Depends}\n"
    shown = subprocess.run(("dpkg-query", "-W", "-f", "${db:Status-Status}|" + form), capture_output=True, text=True, check=True).stdout
    called: dict[str, str] = {}
    depends: dict[str, str] = {}
    provided: dict[str, str] = {}
    for status, package, full, provides, needed in (line.split("|", 4) for line in shown.splitlines()):
        if status == "installed":
            called.setdefault(package, full)
            depends.setdefault(package, needed)
            for name in _names(provides):
                provided.setdefault(name, package)
    if missing := [name for name in wanted if name not in called]:
        raise LookupError(f"not installed as packages: {', '.join(missing)}; run scripts/setup test")
    found, todo = set[str](), list(wanted)
    while todo:
        package = todo.pop()
        if package in found or package in LEFT_OUT:
            continue
        found.add(package)
        for one in depends[package].split(","):
            fitting = (name if name in called else provided.get(name) for name in _names(one.replace("|", ",")))
            todo += [name for name in fitting if name][:1]
    return {called[package] for package in found}


def _names(field: str) -> Iterator[str]:
    """The packages in a list with versions and architectures: `libc6 (>= 2.36), perl:any`."""
    yield from (word.split()[0].partition(":")[0] for word in field.split(",") if word.strip())


def _files(packages: set[str]) -> set[str]:
    """What there is of the packages' files, where a link as /bin is does not stand in the way, and the alternatives that lead to them."""
    listed = subprocess.run(("dpkg-query", "-L", *sorted(packages)), capture_output=True, text=True, check=True).stdout
    found = set[str]()
    for path in listed.splitlines():
        if path.startswith("/") and path != "/." and not UNWANTED.match(path):
            parent, name = os.path.split(path)
            real = os.path.join(os.path.realpath(parent), name)
            if os.path.lexists(real):
                found.add(real)
    for entry in os.scandir("/etc/alternatives"):
        if entry.is_symlink() and os.path.realpath(entry.path) in found:
            found.add(entry.path)
            found.update(link for top in ("bin", "sbin") if os.path.islink(link := f"/usr/{top}/{entry.name}") and os.readlink(link) == entry.path)
    return found | {path for path in ("/usr/bin/sh", "/etc/ssl/certs/ca-certificates.crt") if os.path.lexists(path) and "/usr/bin/dash" in found}


def _add(archive: tarfile.TarFile, path: str, done: set[str]) -> None:
    """A path of this machine with the directories that lead there; each once, for docker takes no path twice."""
    name = path.lstrip("/")
    if name in done:
        return
    done.add(name)
    parent = os.path.dirname(path)
    if parent != "/":
        _add(archive, parent, done)
    entry = archive.gettarinfo(path, name)
    if entry is None:
        return  # a socket
    if entry.isreg():
        with open(path, "rb") as file:
            archive.addfile(entry, file)
    else:
        archive.addfile(entry)


def _make(archive: tarfile.TarFile, name: str, kind: bytes, text: str = "", mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size = kind, mode, len(text.encode())
    archive.addfile(entry, io.BytesIO(text.encode()))
