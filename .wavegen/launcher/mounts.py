"""From rules and this machine to mounts: `resolve_mounts` decides once what is inside at which path, and whoever asks or mounts asks it.

The order, of which each line may count on those before it:

1. the system: by the rules of the root, from an empty directory, so that what no rule shows is not there, and nothing is mounted to be
   hidden again. What a rule hides below something shown is masked, where this user could read it.
2. the private home and the project, each at its own path. Between them nothing can be written.
3. what the manifest grants, links resolved as `symlinks` has it.
4. what is protected: wavegen's own files, git's and others' settings that the host runs or follows. Read-only where they exist.
5. what the manifest hides, by whatever name a mount of 1 to 4 shows it, and wavegen's state.
6. anchors: whoever may rename a directory above a mount takes the mount away with it. So each directory between a writable place and a
   mount in it is a mount of its own, which nobody can rename (rename(2), EBUSY).

Mounts are made shallow to deep. A mount's source is a path without links; `bwrap` opens it component by component and hands over a descriptor.

Longer than 400 lines: one decision, read from top to bottom, in the order above.
"""

from __future__ import annotations

import errno
from _stat import S_ISDIR, S_ISLNK, S_ISREG, S_ISSOCK

from .errors import CannotStartError
from .git import ANCHOR as GIT_ANCHOR
from .git import COPY as GIT_COPY
from .git import WRITE as GIT_WRITE
from .git import survey_repositories
from .rules import HIDE, READ, TMPFS, WRITE, PathRule, Rules
from .symlinks import is_within, is_within_any, resolve_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from .host import Host
    from .places import Places

RO_BIND, BIND, DEV_BIND, SCRATCH, EMPTY, MASK, SYMLINK, DEV, PROC, FILE = (
    *("ro-bind", "bind", "dev-bind", "tmpfs", "empty", "mask", "symlink", "dev", "proc", "file"),
)
"""Kinds of mounts: SCRATCH is a writable tmpfs, EMPTY a read-only one, MASK a file that cannot be opened, FILE a copy of a small file."""
_STORES = ("/nix/store", "/gnu/store")
PROC_OF_ROOT = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/mtrr", "/proc/pressure")
"""Real root keeps write access there without any capability, and some run code on the host: core_pattern takes a pipe."""
_PROC_OF_ALL = ("/proc/sys", "/proc/pressure")
"""Anybody may write there: settings of the namespaces that bwrap made, and triggers of the host's pressure (psi.txt of the kernel)."""
_NOT_OF_THE_ROOT = ("dev", "proc", "tmp", "run", "lost+found")
_COPIED = 256 * 1024
"""Bytes of a file of the system that is copied: a mount takes the kernel longer."""
_MOST_NAMES = 10_000
"""Names of the project's root that are read at once."""
_MOST_PRIVATE = 20_000
"""Entries of a directory that are asked whether others may read them."""


class Mount:
    """What is inside at a path. `source`: the path that is shown; of a SYMLINK where it leads; `mode`: of a SCRATCH, octal."""

    __slots__ = ("anchors", "data", "kind", "mode", "origin", "rule", "source", "target")

    def __init__(self, kind: str, target: str, origin: str, source: str = "", *, mode: str = "", anchors: bool = False, data: bytes | None = None) -> None:
        self.kind, self.target, self.origin, self.source, self.mode, self.anchors, self.data = kind, target, origin, source, mode, anchors, data
        self.rule: PathRule | None = None
        """rule: which of the manifest asks for it, where one does; anchors: whether it is there for its place alone, in which nothing else may be put; data: of a FILE its content, where that was read."""

    def __repr__(self) -> str:
        return f"Mount({self.kind} {self.source or '-'} {self.target})"

    @property
    def shows_host(self) -> bool:
        """Whether something of the host is seen through it."""
        return self.kind in (RO_BIND, BIND, DEV_BIND, FILE)

    @property
    def shows_directory(self) -> bool:
        """Whether programs may lie in it."""
        return self.kind in (RO_BIND, BIND, DEV_BIND, SCRATCH, EMPTY)

    @property
    def is_writable(self) -> bool:
        """Whether what is written there lasts."""
        return self.kind == BIND


def resolve_mounts(rules: Rules, places: Places, host: Host, *, stores: Sequence[str] | None = None) -> tuple[Mount, ...]:
    """All mounts of a shell, in the order in which they are made. Raises CannotStartError; makes and changes nothing.

    `stores`: for a container, whose system is its image's: the directories of packages (/nix/store) that are shown of the host all the same.
    """
    view = _View(rules, places, host)
    try:
        if stores is None:
            view.show_system()
        else:
            view.show_beside_image(stores)
        view.show_home_and_project()
        view.show_granted()
        view.protect_host_followed_files()
        view.mask_denied_paths()
    except OSError as failed:
        where = failed.filename or "a path of the manifest"
        raise CannotStartError(f"{where} cannot be looked at: {failed.strerror}", f"make it accessible: chmod u+rwx {where}") from None
    return view.anchored_mounts()


def _obstacle_error(path: str, status: os.stat_result) -> CannotStartError:
    what = "a symlink" if S_ISLNK(status.st_mode) else "no directory"
    return CannotStartError(f"{path} is {what} where the manifest mounts something", "remove it")


class _View:
    """What is shown so far, by target."""

    def __init__(self, rules: Rules, places: Places, host: Host) -> None:
        self.rules, self.places, self.host = rules, places, host
        self.mounts: dict[str, Mount] = {}
        self.granted: list[tuple[str, PathRule, str]] = []
        """What the manifest grants: the source, the rule, the path that it names."""
        self.system = [rule for rule in rules.paths if not rule.is_named and rule.path[0] == "/"]

    def put_mount(self, kind: str, target: str, origin: str, source: str = "", *, mode: str = "", anchors: bool = False) -> None:
        self.mounts[target] = Mount(kind, target, origin, source, mode=mode, anchors=anchors)

    def put_for(self, rule: PathRule, kind: str, target: str, source: str = "", *, mode: str = "") -> None:
        """The same for a rule of the manifest."""
        self.put_mount(kind, target, rule.origin, source, mode=mode)
        self.mounts[target].rule = rule

    def mount_above(self, path: str) -> Mount | None:
        """The mount that a path lies in: the nearest one above it, or at it."""
        while path:
            found = self.mounts.get(path)
            if found and found.kind != SYMLINK:
                return found
            path = path.rpartition("/")[0]
        return None

    def _status_or_none(self, path: str) -> os.stat_result | None:
        """What is at a path; None where nothing is."""
        try:
            return self.host.lstat(path)
        except OSError as failed:
            if failed.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    # --- 1. the system

    def show_system(self) -> None:
        self.put_mount(DEV, "/dev", "default: the few devices that everybody may use")
        self.put_mount(PROC, "/proc", "default: the processes of this shell alone")
        for path in PROC_OF_ROOT if self.host.uid == 0 else _PROC_OF_ALL:
            if self._status_or_none(path):
                self.put_mount(RO_BIND, path, "default: settings and triggers of the kernel", path)
        for rule in sorted(self.system, key=lambda rule: rule.path.count("/") if rule.path != "/" else 0):
            if rule.path == "/":
                if rule.access == READ:
                    self._show_top_level(rule)
            elif rule.access == TMPFS and rule.source:
                self.put_mount(SYMLINK, rule.path, rule.origin, rule.source)
            elif rule.access == TMPFS:
                self.put_mount(SCRATCH, rule.path, rule.origin, mode="1777" if rule.path.endswith(("/tmp", "/shm")) else "0755")
            elif rule.access == HIDE:
                self._mask_default(rule)
            else:
                self._show_of_system(rule)
        private = self.rules.setting_value("private")
        if private and self.host.is_member and private in self.mounts:
            self._mask_private(private, self.rules.setting_origin("private"))

    def show_beside_image(self, stores: Sequence[str]) -> None:
        """What a container shows of the host's system. No default mask is needed: what no mount shows is the image's."""
        for rule in self.system:
            if rule.access == TMPFS and not rule.source:
                self.put_mount(SCRATCH, rule.path, rule.origin, mode="1777")
            elif rule.access == READ and rule.source:
                self.put_mount(FILE, rule.path, rule.origin, self.places.expand_anchor(rule.source))
        if self.rules.setting_value("network") == "none":
            # An engine puts a copy of the host's there, whatever the network.
            self.put_mount(FILE, "/etc/resolv.conf", "default: the host's names its network", f"{self.places.launcher}/etc/resolv.conf")
        for path in ("/etc/passwd", "/etc/group"):
            real = resolve_path(self.host, path)
            if real:
                self.put_mount(FILE, path, "default: ssh, for one, ends where an uid has no name", real)
        for path in stores:
            self.put_mount(RO_BIND, path, "default: the caller's PATH leads there", path)

    def _show_top_level(self, root: PathRule) -> None:
        hidden = {rule.path for rule in self.system if rule.access != READ}
        hidden |= {self.places.expand_anchor(rule.path) for rule in self.rules.paths if rule.access == HIDE}
        for name, is_directory in self.host.scandir("/", 1000):
            path = f"/{name}"
            if name in _NOT_OF_THE_ROOT or path in hidden:
                continue
            status = self._status_or_none(path)
            if status and S_ISLNK(status.st_mode):
                self.put_mount(SYMLINK, path, root.origin, self.host.readlink(path))
            elif status and is_directory and status.st_mode & 0o005 == 0o005:
                self.put_mount(RO_BIND, path, root.origin, path)

    def _show_of_system(self, rule: PathRule) -> None:
        path = rule.path
        if rule.source:
            self.put_mount(FILE, path, rule.origin, self.places.expand_anchor(rule.source))
            return
        shown_later = [other.path for other in self.system if other.access == READ and other.path != "/"]
        try:
            status = self._status_or_none(path)
            if status and S_ISLNK(status.st_mode):
                real = resolve_path(self.host, path)
                shown = self.mount_above(real) if real else None
                if real and ((shown and shown.shows_host) or is_within_any(real, shown_later)):
                    self.put_mount(SYMLINK, path, rule.origin, self.host.readlink(path))
                    return
                status, source = self._status_or_none(real) if real else None, real
            else:
                source = resolve_path(self.host, path)
        except OSError:
            return  # what cannot be looked at cannot be read inside either
        if status and source:
            small = S_ISREG(status.st_mode) and status.st_size <= _COPIED and "required" not in rule.flags
            if not self._is_shown_as_is(path, source):
                self.put_mount(FILE if small and self.host.can_read(source) else RO_BIND, path, rule.origin, source)
        elif "required" in rule.flags:
            raise CannotStartError(f"{path} does not exist", "this system is laid out in a way that wavegen does not know; please report it")

    def _is_shown_as_is(self, path: str, source: str) -> bool:
        above = self.mount_above(path)
        return bool(above and above.shows_host and above.source + path[len(above.target) :] == source)

    def _mask_default(self, rule: PathRule) -> None:
        path = rule.path
        try:
            real = resolve_path(self.host, path)
        except OSError:
            return
        above = self.mount_above(real) if real else None
        if above and above.shows_host and above.target != real and self.host.can_read(real):
            self._mask_path(real, rule.origin)

    def _mask_path(self, path: str, origin: str) -> None:
        if S_ISDIR(self.host.lstat(path).st_mode):
            self.put_mount(EMPTY, path, origin)
        else:
            self.put_mount(MASK, path, origin)

    def _mask_private(self, top: str, origin: str) -> None:
        """Hide what others than its owner and group cannot read, where this user is one of them."""
        found, left = [top], _MOST_PRIVATE
        while found:
            directory = found.pop()
            entries = self.host.scandir_modes(directory, left)
            left -= len(entries)
            if left < 0:
                raise CannotStartError(f"{top} holds too many entries to look at", "start as a user that is in no group of the system")
            for name, mode in entries:
                path = f"{directory}/{name}"
                if not mode & 0o004:
                    if self.host.can_read(path):
                        self.mounts.setdefault(path, Mount(EMPTY if S_ISDIR(mode) else MASK, path, origin))
                elif S_ISDIR(mode):
                    found.append(path)

    # --- 2. the home and the project

    def show_home_and_project(self) -> None:
        places = self.places
        for rule in self.rules.paths:
            path = places.expand_anchor(rule.path) if rule.path in ("~/..", "./..") else "/"
            above = self.mount_above(path) if path != "/" and path not in self.mounts else None
            if above and above.shows_host and path not in (places.home, places.project):
                self.put_mount(EMPTY, path, rule.origin)
        for rule in self.rules.paths:
            if rule.path == "~" and rule.access == TMPFS:
                self.put_mount(SCRATCH, places.home, rule.origin, mode="0700")
            elif rule.path == "~":
                self.put_mount(BIND, places.home, rule.origin, places.expand_anchor(rule.source))
            elif rule.path == ".":
                self.put_mount(BIND if rule.access == WRITE else RO_BIND, places.project, rule.origin, places.project)

    # --- 3. what the manifest grants

    def show_granted(self) -> None:
        granted = [rule for rule in self.rules.paths if rule.access in (READ, WRITE, TMPFS) and rule.path not in ("~", ".") and "guarded" not in rule.flags]
        granted = [rule for rule in granted if rule.is_named or rule.path[0] != "/"]
        for rule in sorted(granted, key=lambda rule: self.places.expand_anchor(rule.path).count("/")):
            path = self.places.expand_anchor(rule.path)
            if "pinned" in rule.flags:
                continue
            if rule.access == TMPFS:
                self.put_for(rule, SCRATCH, path, mode="0700")
            else:
                self._grant_path(rule, path)

    def _grant_path(self, rule: PathRule, path: str) -> None:
        places = self.places
        # Another private home than the real one is there, whose links are its own.
        source = resolve_path(self.host, path, places.written, lambda: self._manifest_line_of(rule))
        status = self._status_or_none(source) if source else None
        if status is None:
            if "required" in rule.flags:
                raise CannotStartError(f"{path} does not exist", f"{self._manifest_line_of(rule)} asks for it; create it, or write optional: true")
            return
        if source == places.home:
            raise CannotStartError(f"{path} is the real home directory", f"{self._manifest_line_of(rule)} asks for it; name what is needed below it")
        if source == places.project:
            raise CannotStartError(f"{path} is the project directory", f"{self._manifest_line_of(rule)} asks for it; write the path as .")
        target = self._target_of(rule, path, source)
        for name in self._sandbox_file_paths():
            if is_within(source, name):
                raise CannotStartError(f"{source} is part of the sandbox's own configuration", f"{self._manifest_line_of(rule)} asks for it; remove the entry")
        self._refuse_aliases(rule, path, source)
        if S_ISSOCK(status.st_mode) and "socket" not in rule.flags:
            raise CannotStartError(
                f"{source} is a socket: the server behind it runs outside the sandbox",
                f"{self._manifest_line_of(rule)} asks for it; remove it, or write socket: true",
            )
        kind = DEV_BIND if source.startswith("/dev/") else BIND if rule.access == WRITE else RO_BIND
        self.put_for(rule, kind, target, source)
        self.granted.append((source, rule, path))

    def _manifest_line_of(self, rule: PathRule) -> str:
        """Where the manifest asks for it."""
        from .manifest_lines import find_path_line  # for messages alone

        return find_path_line(self.host, self.places.project, rule)

    def _target_of(self, rule: PathRule, path: str, source: str) -> str:
        """Where a granted path is shown: at its own name, in a directory without links."""
        places = self.places
        above, _, name = path.rpartition("/")
        parent = resolve_path(self.host, above or "/")
        target = path if is_within(path, places.home) else f"{parent.rstrip('/')}/{name}"
        within = ""
        shown = self.mount_above(target.rpartition("/")[0])
        if shown and shown.shows_host and not shown.anchors and (shown.target != places.home or is_within(target, places.project)):
            within = shown.source if rule.path[0] in "~." or is_within(target, places.project) else ""
        elif is_within(target, places.home):
            within = places.home
        if within and not is_within(source, within) and not (within == places.home and is_within_any(source, _STORES)):
            raise CannotStartError(
                f"{path} leads to {source}, outside {within}", f"{self._manifest_line_of(rule)} asks for it; name the place it leads to instead"
            )
        if shown and within and within == shown.source and within != places.home:
            return shown.target + source[len(within) :]
        if not is_within_any(target, (places.home, places.project)) and self.mount_above(target) is not None:
            return source  # a link there cannot be mounted over; what it leads to can
        return target

    def _sandbox_file_paths(self) -> Iterator[str]:
        return (self.places.expand_anchor(rule.path) for rule in self.rules.paths if "pinned" in rule.flags)

    def _refuse_aliases(self, rule: PathRule, path: str, source: str) -> None:
        """By another name a place would be there without what is mounted in it: pins, masks, the private home."""
        places = self.places
        if path != source:
            if is_within(places.home, source):
                raise CannotStartError(
                    f"{path} leads to {source}, which holds the real home", f"{self._manifest_line_of(rule)} asks for it; name what is needed below it"
                )
            if rule.access == WRITE and (is_within(places.project, source) or is_within(source, places.project)) and not is_within(path, places.project):
                raise CannotStartError(
                    f"{path} leads to {source}, a place of the project", f"{self._manifest_line_of(rule)} asks for it; name the place itself"
                )
        if is_within(path, places.home):
            return
        for other_source, other, other_path in self.granted:
            plainly = path == source and other_path == other_source
            if other.access != rule.access and not plainly and (is_within(source, other_source) or is_within(other_source, source)):
                raise CannotStartError(
                    f"{path} and {other_path} lead to one place, {source}, with different rights",
                    f"{self._manifest_line_of(rule)} and {self._manifest_line_of(other)} ask for them; name the places themselves",
                )

    # --- 4. what is protected

    def protect_host_followed_files(self) -> None:
        places = self.places
        self._protect_own_files()
        project = self.mounts.get(places.project)
        writable = tuple(mount.source for mount in self.mounts.values() if mount.kind == BIND and mount.target not in (places.home, places.project))
        if not (project and project.kind == BIND) and not writable:
            return
        names = dict(self.host.scandir(places.project, _MOST_NAMES))
        # A command may make so many names that others are never read.
        are_all = len(names) <= _MOST_NAMES
        for rule in self.rules.paths:
            is_there = not are_all or rule.path[2:].partition("/")[0] in names
            if "guarded" in rule.flags and is_there:
                self._protect_if_present(places.expand_anchor(rule.path), rule.origin, anchor=rule.access == WRITE)
        for found in survey_repositories(self.host, places.project, home=places.home, kept=places.state, writable=writable, borrows=self._is_git_known()):
            origin = f"default: {found.reason}"
            if found.access == GIT_COPY:
                self._show_pointer(found.path, found.text, origin)
            elif found.access == GIT_WRITE or not is_within_any(found.path, (places.project, *writable)):
                self.mounts.setdefault(found.path, Mount(BIND if found.access in (GIT_WRITE, GIT_ANCHOR) else RO_BIND, found.path, origin, found.path))
            else:
                self._protect_if_present(found.path, origin, anchor=found.access == GIT_ANCHOR)

    def _is_git_known(self) -> bool:
        """Whether the project's `.git` was there before any command: in one that a command made, settings name whatever it wants to see."""
        try:
            return self.host.read_host_file(f"{self.places.kept}/.git", 100) == b"%d" % self.host.lstat(f"{self.places.project}/.git").st_ino
        except OSError:
            return False

    def _protect_own_files(self) -> None:
        for rule in self.rules.paths:
            if "pinned" not in rule.flags:
                continue
            path = self.places.expand_anchor(rule.path)
            status = self._status_or_none(path)
            if status is None:
                # What is not there could be made inside.
                if "required" in rule.flags:
                    raise CannotStartError(f"{path} is missing", "run wavegen render")
            elif S_ISLNK(status.st_mode):
                raise CannotStartError(f"{path} is a symlink, which an agent could point to another file", "replace the link with the file")
            else:
                self.put_mount(RO_BIND, path, rule.origin, path)

    def _protect_if_present(self, path: str, origin: str, *, anchor: bool) -> None:
        """Make what the host runs or follows read-only, where the manifest says nothing about it. A link cannot be mounted over: what it leads to is."""
        real = resolve_path(self.host, path)
        if not real or (real != path and not is_within(real, self.places.project)):
            return
        target, known = self._shown_at(real), self.mounts.get(self._shown_at(real))
        if known and not known.anchors:
            return
        above = self.mount_above(target)
        if above and above.kind == BIND:
            directory = S_ISDIR(self.host.lstat(real).st_mode)
            self.put_mount(BIND if anchor and directory else RO_BIND, target, origin, real, anchors=anchor and directory)

    def _shown_at(self, source: str) -> str:
        """Where something that the host has at `source` is inside: in the home and the project where it is."""
        for granted, rule, path in self.granted:
            target = self.places.expand_anchor(rule.path)
            if is_within(source, granted) and granted != target and target in self.mounts and path == target:
                return target + source[len(granted) :]
        return source

    def _show_pointer(self, path: str, text: bytes, origin: str) -> None:
        """A file where nothing else of its directory is: git asks whether another checkout is still there."""
        above = self.mount_above(path)
        if above and above.kind == BIND:
            self.put_mount(EMPTY, path.rpartition("/")[0], origin)
        elif above and above.shows_host:
            return
        self.mounts[path] = Mount(FILE, path, origin, path, data=text)

    # --- 5. what the manifest hides

    def mask_denied_paths(self) -> None:
        places = self.places
        for rule in self.rules.paths:
            if rule.access == HIDE and rule.is_named:
                path = places.expand_anchor(rule.path)
                real = self._resolve_denied_path(path, rule)
                if real == places.project:
                    raise CannotStartError(f"{real} is the project itself", f"{self._manifest_line_of(rule)} asks to hide it; name what must not be read in it")
                if real:
                    self._hide_everywhere(real, rule)
        for state in dict.fromkeys((places.state, self._usual_state())):
            if state and self._status_or_none(state):
                own = PathRule(HIDE, state, (), "default: wavegen's own state: logins of other shells, approvals")
                self._hide_everywhere(state, own)

    def _usual_state(self) -> str:
        """Where starts keep what they keep that do not have this one's XDG_STATE_HOME; empty where that is nowhere."""
        try:
            return resolve_path(self.host, f"{self.places.home}/.local/state/wavegen", self.places.written)
        except (OSError, CannotStartError):
            return ""

    def _resolve_denied_path(self, path: str, rule: PathRule) -> str:
        """What a rule of deny_read_paths is about, without links; empty where nothing is there, and nobody inside could get to it."""
        try:
            return resolve_path(self.host, path, self.places.written, lambda: self._manifest_line_of(rule))
        except OSError as failed:
            above = (failed.filename or path).rpartition("/")[0]
            # A directory of our own could be opened again inside; nobody inside gets into another's.
            if failed.errno == errno.EACCES and not self.host.owns_path(above):
                return ""
            raise CannotStartError(
                f"cannot check whether {path} exists: {above} is not accessible",
                f"{self._manifest_line_of(rule)} asks to hide it; make {above} accessible",
            ) from None

    def _hide_everywhere(self, path: str, rule: PathRule) -> None:
        places = self.places
        for mount in list(self.mounts.values()):
            if not mount.shows_host:
                continue
            if is_within(path, mount.source):
                shown = mount.target.rstrip("/") + path[len(mount.source.rstrip("/")) :]
                covering = self.mount_above(shown)
                if covering and (covering is mount or (covering.target == shown and covering.source == path)):
                    self._hide_at(shown, path, rule)
            elif is_within(mount.source, path) and not mount.anchors and mount.target not in (places.home, places.project, *self._sandbox_file_paths()):
                self._hide_at(mount.target, mount.source, rule)

    def _hide_at(self, target: str, path: str, rule: PathRule) -> None:
        known = self.mounts.get(target)
        if known and known.rule and self._is_granted(known):
            raise CannotStartError(
                f"{target} is both granted and hidden",
                f"{self._manifest_line_of(known.rule)} and {self._manifest_line_of(rule)} ask for it; remove one of the two",
            )
        if S_ISDIR(self.host.lstat(path).st_mode):
            # What is mounted below would show it again; the home, the project and what is granted are meant.
            kept = [place for place in (self.places.home, self.places.project) if is_within(place, target)]
            for other in list(self.mounts):
                if other != target and is_within(other, target) and not is_within_any(other, kept) and not self._is_granted(self.mounts[other]):
                    del self.mounts[other]
            self.put_for(rule, EMPTY, target)
        elif not self._is_below_mask(target):
            self.put_for(rule, MASK, target)

    def _is_below_mask(self, target: str) -> bool:
        above = self.mount_above(target.rpartition("/")[0])
        return bool(above and above.kind == EMPTY)

    def _is_granted(self, mount: Mount) -> bool:
        return any(rule is mount.rule for _, rule, _ in self.granted)

    # --- 6. anchors, and the order

    def anchored_mounts(self) -> tuple[Mount, ...]:
        """The mounts with what keeps their places, shallow to deep, without those that change nothing."""
        # The way to the project first: it is kept empty, whatever else is mounted on it.
        for mount in sorted(self.mounts.values(), key=lambda mount: (mount.target != self.places.project, mount.target.count("/"))):
            self._anchor_parents(mount)
        kept = [mount for mount in self.mounts.values() if not self._is_redundant(mount)]
        return tuple(sorted(kept, key=lambda mount: mount.target.count("/")))

    def _anchor_parents(self, mount: Mount) -> None:
        places = self.places
        base = self.mount_above(mount.target.rpartition("/")[0])
        if not base or not (base.kind == BIND or base.target == places.home):
            return
        at, source = base.target, base.source
        point = base.source + mount.target[len(base.target) :]
        status = self._status_or_none(point) if base.kind == BIND and point != mount.source else None
        if status and S_ISLNK(status.st_mode):
            raise _obstacle_error(point, status)
        for part in mount.target[len(base.target) + 1 :].split("/")[:-1]:
            at, source = f"{at}/{part}", f"{source}/{part}"
            if base.target == places.home and is_within(places.project, at):
                # What is written there would be seen nowhere else, and look as if it were beside the project.
                self.put_mount(EMPTY, at, "default: between the home and the project nothing can be written")
                return
            if base.kind == BIND:
                status = self._status_or_none(source)
                if status and not S_ISDIR(status.st_mode):
                    raise _obstacle_error(source, status)
                self.put_mount(BIND, at, "default: its place is kept: whoever renames it takes away what is mounted in it", source, anchors=True)

    def _is_redundant(self, mount: Mount) -> bool:
        """Whether the same is there anyway: something read-only in something read-only."""
        above = self.mount_above(mount.target.rpartition("/")[0])
        if not above:
            return mount.kind in (MASK, EMPTY) and mount.target not in (self.places.home, self.places.project)
        same = above.shows_host and above.source.rstrip("/") + mount.target[len(above.target.rstrip("/")) :] == mount.source
        return mount.kind == RO_BIND and above.kind == RO_BIND and same
