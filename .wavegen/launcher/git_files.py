"""Read what git reads: pointers, settings, directories. Asks a `Host`, follows links in the open, and is never led by an error to take a thing for absent."""

from __future__ import annotations

from _stat import S_ISDIR, S_ISLNK, S_ISREG
from errno import EACCES, EFBIG, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR

from .errors import CannotStartError, escape_unprintable
from .git_config import decode_path, parse_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    import posix

    from .git_config import Setting
    from .host import Host

MOST_NAMES = 2000
"""Names that are read of a directory."""
LARGEST_CONFIG, LARGEST_SETTINGS, LARGEST_POINTER, LARGEST_LIST = 1 << 20, 1 << 21, 4096, 1 << 16
"""Bytes: of a file of settings, of all of them, of a `.git` file and its like (no path is longer), of objects/info/alternates."""
_MOST_LINKS = 40
_NOTHING = (ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EINVAL, EISDIR)


def is_at_or_below(path: str, above: str) -> bool:
    return path == above or path.startswith(above if above == "/" else above + "/")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def join_path(base: str, path: str) -> str:
    return path if path.startswith("/") else f"{base}/{path}"


def quote_path(path: str) -> str:
    """A path as a word of bash's, for remedies: commands choose names."""
    if all(character.isalnum() or character in "/._-+" for character in path):
        return path
    return "$'" + escape_unprintable(path.replace("\\", "\\\\").replace("'", "\\'")) + "'"


class GitFiles:
    """Files and directories as git finds them; `places` are directories that commands can write."""

    def __init__(self, host: Host, places: tuple[str, ...]) -> None:
        self.host, self.places = host, places
        self._known_settings: dict[str, list[Setting]] = {}
        self._size = 0
        self._physical = {"/"}
        for place in places:
            at = place
            while at not in self._physical:
                self._physical.add(at)
                at = parent_of(at)

    def is_writable(self, path: str) -> bool:
        return any(path == place or path.startswith(place + "/") for place in self.places)

    def _check_unseen(self, error: OSError, path: str) -> None:
        """Return where there is nothing, or nothing that commands of this user could use; raise where they could."""
        if error.errno in _NOTHING:
            return
        if error.errno != EACCES:
            raise CannotStartError(f"cannot look at {path} for git: {error.strerror}", "repair the file system, or move it out of the project") from error
        for place in self.places:
            if not is_at_or_below(path, place):
                continue
            at, names = place, path[len(place) + 1 :].split("/")
            while True:
                try:
                    status = self.host.lstat(at)
                except OSError:
                    break
                if status.st_uid == self.host.uid and (
                    (S_ISDIR(status.st_mode) and status.st_mode & 0o700 != 0o700) or (S_ISREG(status.st_mode) and at == path)
                ):
                    bits = "rwx" if S_ISDIR(status.st_mode) else "rw"
                    raise CannotStartError(
                        f"git's files in {at} cannot be protected: its owner has no permission to list them", f"chmod u+{bits} {quote_path(at)}"
                    ) from error
                if not names or not names[0]:
                    break
                at = f"{at}/{names.pop(0)}"
        # Another user's directory, or one outside: commands of this user cannot search it, either.

    def status_if_present(self, path: str) -> posix.stat_result | None:
        try:
            return self.host.lstat(path)
        except OSError as error:
            self._check_unseen(error, path)
            return None

    def is_present(self, path: str) -> bool:
        """Whether anything is there, a link too."""
        return self.status_if_present(path) is not None

    def list_directory_names(self, path: str, most: int = MOST_NAMES) -> dict[str, bool]:
        """Names in a directory, and whether each is a directory; none where it is no directory. More than `most` are not all there."""
        try:
            return dict(self.host.scandir(path, most))
        except OSError as error:
            self._check_unseen(error, path)
            return {}

    def read_git_file(self, path: str, most: int = LARGEST_POINTER) -> bytes:
        try:
            return self.host.read_host_file(path, most)
        except OSError as error:
            if error.errno == EFBIG and most == LARGEST_CONFIG and self.is_writable(path):
                self._refuse_settings(path)
            if error.errno != EFBIG:
                self._check_unseen(error, path)
            return b""

    def _refuse_settings(self, path: str) -> None:
        raise CannotStartError(f"{path}: too large for a git settings file", f"look at it, and remove what a command made: rm {quote_path(path)}")

    def _read_link_target(self, path: str) -> str:
        try:
            return self.host.readlink(path)
        except OSError as error:  # it is none any more
            self._check_unseen(error, path)
            return "\0"

    def read_pointer_line(self, path: str) -> str:
        """The content of a pointer as git takes it, without line ends behind; empty where there is none."""
        text = self.read_git_file(path)
        return "" if b"\0" in text else decode_path(text.rstrip(b"\r\n"))

    def resolve_physical_path(self, path: str) -> str | None:
        """A path without links, `.` and `..`; None where nothing is there. Links are followed in the open, at most forty."""
        if "\0" in path or len(path) > LARGEST_POINTER:
            return None
        links, done, todo = 0, "/", path.split("/")[::-1]
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                done = parent_of(done)
                continue
            at = f"{done}/{name}" if done != "/" else f"/{name}"
            if at not in self._physical:
                status = self.status_if_present(at)
                if status is not None and S_ISLNK(status.st_mode):
                    links += 1
                    target = self._read_link_target(at) if links <= _MOST_LINKS else "\0"
                    if "\0" in target:
                        return None
                    done = "/" if target.startswith("/") else done
                    todo += target.split("/")[::-1]
                    continue
                if status is None or (todo and not S_ISDIR(status.st_mode)):
                    return None
                if S_ISDIR(status.st_mode):
                    self._physical.add(at)
            done = at
        return done

    def read_git_settings(self, path: str) -> list[Setting]:
        """Settings of a physical path."""
        if path not in self._known_settings:
            text = self.read_git_file(path, LARGEST_CONFIG)
            self._size += len(text) if self.is_writable(path) else 0
            if self._size > LARGEST_SETTINGS:
                self._refuse_settings(path)
            self._known_settings[path] = parse_config(text)
        return self._known_settings[path]

    def follow_pointer(self, path: str) -> str | None:
        """The git directory that a `.git` leads to which is a file or a link."""
        real = self.resolve_physical_path(path)
        status = None if real is None else self.status_if_present(real)
        if real is None or status is None or S_ISDIR(status.st_mode):
            return real
        line = self.read_pointer_line(real)
        return self.resolve_physical_path(join_path(parent_of(path), line[8:])) if line.startswith("gitdir: ") else None

    def common_of(self, git: str) -> str | None:
        """The directory that a git directory shares with others: where `commondir` leads, else itself."""
        if not self.is_present(f"{git}/commondir"):
            return git
        line = self.read_pointer_line(f"{git}/commondir")
        return self.resolve_physical_path(join_path(git, line)) if line else None

    def worktree_of(self, git: str) -> str | None:
        """The working tree that the settings of a git directory name."""
        named = [value for section, _, key, value in self.read_git_settings(f"{git}/config") if value and section == "core" and key == "worktree"]
        return self.resolve_physical_path(join_path(git, named[-1])) if named else None

    def uses_worktree_settings(self, common: str) -> bool:
        values = [value for section, _, key, value in self.read_git_settings(f"{common}/config") if section == "extensions" and key == "worktreeconfig"]
        return bool(values) and (values[-1] is None or values[-1].lower() not in ("false", "no", "off", "0", ""))

    def find_missing(self, git: str) -> tuple[str, ...]:
        """Commands that make what else a command could make in a git directory, and git on the host would follow."""
        wanted = [("hooks", "mkdir {}"), ("info", "mkdir {}"), ("commondir", "echo ./ >{}")]
        if self.uses_worktree_settings(git):
            wanted.append(("config.worktree", "touch {}"))
        return tuple(command.format(quote_path(f"{git}/{name}")) for name, command in wanted if not self.is_present(f"{git}/{name}"))

    def read_alternates(self, objects: str) -> list[str]:
        """Object directories that are not writable and that one borrows from (object-file.c, link_alt_odb_entries)."""
        found: list[str] = []
        for line in self.read_git_file(f"{objects}/info/alternates", LARGEST_LIST).split(b"\n")[:MOST_NAMES]:
            store = self.resolve_physical_path(join_path(objects, decode_path(line))) if line and not line.startswith((b"#", b'"')) else None
            if store is None or store in found or self.is_writable(store):
                continue
            if any(name in ("pack", "info") or len(name) == 2 for name in self.list_directory_names(store)):
                found.append(store)
        return found
