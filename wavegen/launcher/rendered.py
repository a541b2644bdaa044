"""Is what lies in the project what the host rendered? For shells in which nothing keeps a command from writing it."""

from __future__ import annotations

import posix
import sys

from .errors import CannotStartError
from .grants import resolve_or_empty
from .symlinks import is_within_any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .host import Host
    from .places import Places
    from .start import Session

_LARGEST = 16 << 20
_LOCK = ".wavegen/lock.json"
_LOOK = "a command may have changed it: look at it, then run wavegen render"


class Rendered:
    """The files that the lock lists. It lies in the project, too; `wavegen render` left its digest in the state, where no command writes."""

    def __init__(self, session: Session) -> None:
        """Raises CannotStartError for what was changed."""
        self.host, self.places, self.tree = session.host, session.places, session.own.rpartition("/")[0]
        text = self._read_or_refuse(f"{self.places.project}/{_LOCK}", "run wavegen render")
        self._digest = listed_digest(text)
        if self._recorded_digest() not in ("", self._digest):
            raise CannotStartError(f"{self.places.project}/{_LOCK} is not what was rendered here", _LOOK)
        self._listed = _listed_digests(text, f"{self.places.project}/{_LOCK}")
        for path, digest in sorted(self._listed.items()):
            if self._digest_at(path) != digest:
                raise CannotStartError(f"{self.places.project}/{path} is not what was rendered last", _LOOK)
        # The rules were read before: another session may have put them there for that moment.
        for path, rules in session.rules.texts.items():
            if self.is_in_project and listed_digest(rules.encode("utf-8", "surrogateescape")) != self._listed.get(path):
                raise CannotStartError(f"{path} was exchanged while it was read", _LOOK)

    @property
    def is_in_project(self) -> bool:
        """Whether the launcher itself is one of the rendered files."""
        return self.tree == f"{self.places.project}/.wavegen"

    def remember_lock_digest(self) -> None:
        """What was there when the first shell started counts as what was rendered from now on."""
        try:
            handle = posix.open(f"{self.places.kept}/rendered", posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600)
        except FileExistsError:
            return
        posix.write(handle, self._digest.encode())
        posix.close(handle)

    def read_checked_output(self, name: str) -> bytes:
        """A file beside the launcher's directory, or in it, as it was rendered. Raises CannotStartError."""
        path = f"{self.tree}/{name}"
        data = self._read_or_refuse(path, "run wavegen render")
        if self.is_in_project and listed_digest(data) != self._listed.get(f".wavegen/{name}"):
            raise CannotStartError(f"{path} is not what was rendered last", _LOOK)
        return data

    def _read_or_refuse(self, path: str, remedy: str) -> bytes:
        try:
            return self.host.read_host_file(path, _LARGEST)
        except OSError as failed:
            raise CannotStartError(f"{path} cannot be read: {failed.strerror}", remedy) from None

    def _recorded_digest(self) -> str:
        try:
            return self.host.read_host_file(f"{self.places.kept}/rendered", 200).decode("ascii", "replace")
        except FileNotFoundError:
            return ""  # no shell was started here yet
        except OSError as failed:
            raise CannotStartError(f"{self.places.kept}/rendered cannot be read: {failed.strerror}", "make it readable") from None

    def _digest_at(self, path: str) -> str:
        try:
            return listed_digest(self.host.read_host_file(f"{self.places.project}/{path}", _LARGEST))
        except OSError:
            return ""


def listed_digest(data: bytes) -> str:
    """As the lock writes it."""
    from hashlib import sha256

    return f"sha256:{sha256(data).hexdigest()}"


def _listed_digests(text: bytes, lock: str) -> dict[str, str]:
    from json import loads

    try:
        known = loads(text)
        return {**known["inputs"], **{path: digest for path, digest in known["outputs"].items() if path.startswith(".wavegen/")}}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CannotStartError(f"{lock} cannot be read", "run wavegen render") from None


def read_all_code(host: Host, own: str, places: Places, written: Sequence[str]) -> None:
    """Read every module of the launcher before a command starts that may exchange them. `written`: what it may write. Raises CannotStartError."""
    for place in sys.path:
        if is_within_any(resolve_or_empty(host, place) or place, written):
            raise CannotStartError(f"Python's own library is in {place}, which the command may write", "start wavegen with the system's python3")
    if own == f"{places.project}/.wavegen/launcher" or not is_within_any(own, written):
        return  # __main__.py has read it as a whole; or it lies where no command writes
    from importlib import import_module

    left = [""]
    for below in left:
        for name, is_directory in host.scandir(f"{own}/{below}".rstrip("/"), 1000):
            if is_directory and name.isidentifier() and name != "__pycache__":
                left.append(f"{below}{name}/")
            elif name.endswith(".py") and name not in ("__main__.py", "__init__.py"):
                import_module(f"launcher.{below.replace('/', '.')}{name[:-3]}")
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] == "launcher" and hasattr(module, "__path__"):
            module.__path__ = []  # nothing more of it is found
