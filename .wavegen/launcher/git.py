"""What git on the host runs or follows in repositories that commands can write. Asks a `Host`, and starts nothing, git least of all.

Sources: gitrepository-layout(5), git-config(1), git-worktree(1); setup.c, worktree.c, config.c and object-file.c of git. A mount cannot protect what is not
there: a repository without `commondir` or `hooks` stays open in that place (`missing_parts`), and audits look for it.

Longer than 400 lines: one decision, read from top to bottom.
"""

from __future__ import annotations

from _stat import S_ISDIR, S_ISLNK, S_ISREG

from .errors import CannotStartError, escape_unprintable
from .git_config import COMMAND, INCLUDE, named_kind, split_command
from .git_files import MOST_NAMES, GitFiles, is_at_or_below, join_path, parent_of, quote_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .host import Host

READ, ANCHOR, WRITE, COPY = "read", "anchor", "write", "copy"
"""READ: bind read-only onto itself. ANCHOR: bind writable onto itself, so that it can be neither renamed nor replaced. WRITE: bind writable, mostly
below something READ. COPY: show a file with `text` at a path where nothing else of its directory is shown.
"""
MOST_RULES, MOST_DIRECTORIES, MOST_ENTRIES = 300, 1000, 64
"""Rules of a start, directories looked at in a writable place, worktrees or alternates of a repository."""
_DEEPEST_INCLUDE, _DEEPEST_ALTERNATE, _DEEPEST_MODULE, _DEEPEST_REPOSITORY = 10, 5, 8, 16
_MOST_MODULES, _MOST_HOOKS, _MOST_NAMED = 300, 200, 2000
_SKIPPED = (".git", ".wavegen", "node_modules", ".venv", "target")
_FOLLOWED = (
    ("config", "git on the host follows the settings"),
    ("config.worktree", "git on the host follows the settings"),
    ("commondir", "it leads git on the host to settings and hooks"),
    ("gitdir", "it leads git on the host to a working tree"),
    ("info/attributes", "it makes git on the host run filters"),
    ("info/grafts", "git on the host takes other commits for parents"),
    ("objects/info/alternates", "it leads git on the host to other objects"),
    ("refs/replace", "git on the host reads other objects in place of these"),
)
_SHARED = ("objects", "refs", "logs", "reftable", "lfs")
"""What git writes of a common directory from a linked worktree, beside the worktree's entry. Its top is not writable: who can make the lock `packed-refs.lock`
there, which git takes to delete a ref, can make `commondir`, too.
"""
_SYSTEM_NAMES = ("bin", "boot", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "nix", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var")  # fmt: skip
_SYSTEM = ("/", "/usr/local", "/var/tmp", *("/" + name for name in _SYSTEM_NAMES))


class GitRule:
    """One place and what may be done there; `text` is what a COPY shows."""

    __slots__ = ("access", "path", "reason", "text")

    def __init__(self, access: str, path: str, reason: str, text: bytes = b"") -> None:
        self.access, self.path, self.reason, self.text = access, path, reason, text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GitRule) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"GitRule({self.access!r}, {self.path!r}, {self.reason!r})"


def survey_repositories(
    host: Host, project: str, *, home: str, kept: str, writable: tuple[str, ...] = (), budget: int = MOST_RULES, borrows: bool = True
) -> tuple[GitRule, ...]:
    """Rules for all repositories in the project (three deep) and in other writable directories (two deep), shallow before deep.

    Every directory between a writable place and a rule is an ANCHOR, too. `home` and `kept`, the state directory, are never shown, nor what holds them. From
    two thirds of the budget on, a git directory is one READ. Raises CannotStartError where this user's own directory cannot be searched, where settings are
    too large, and where even so the rules are more than twice the budget. `borrows`: no command made the project's own `.git`, whose settings may so name
    objects that are shown.
    """
    look = _Survey(host, project, home, kept, writable, budget, borrows=borrows)
    look.collect_git_rules()
    return look.finish_git_rules()


def explain_unusable_git(host: Host, project: str, *, home: str, kept: str, writable: tuple[str, ...] = ()) -> str | None:
    """Why git does not work, or only reads, in a shell of this project, and what to do; None where it works."""
    look = _Survey(host, project, home, kept, writable, MOST_RULES)
    look.collect_git_rules()
    return escape_unprintable("; ".join(look.notes)) or None


def git_directories(host: Host, project: str, *, home: str) -> tuple[str, ...]:
    """The git directories in a project that are a repository of their own: not entries of linked worktrees, which lead to one. Raises as `survey_repositories`."""
    look = _Survey(host, project, home, "/", (), MOST_RULES)
    look.collect_git_rules()
    return tuple(sorted(git for git in look.surveyed_git_directories if is_at_or_below(git, project) and look.files.is_present(f"{git}/objects")))


def missing_parts(host: Host, git: str) -> tuple[str, ...]:
    """Commands that make what git on the host would follow in a git directory if somebody else made it there first."""
    files = GitFiles(host, (git,))
    replaced = () if files.is_present(f"{git}/refs/replace") else ("mkdir " + quote_path(f"{git}/refs/replace"),)
    return files.find_missing(git) + replaced


class _Survey:
    """One look at all repositories: rules by path, and notes on what git lacks."""

    def __init__(self, host: Host, project: str, home: str, kept: str, writable: tuple[str, ...], budget: int, *, borrows: bool = True) -> None:
        self._borrows = borrows
        self.project, self.home, self.kept, self.budget, self.uid = project, home, kept, budget, host.uid
        self.places = (project, *writable)
        self.files = GitFiles(host, self.places)
        self.rules: dict[str, GitRule] = {}
        self._whole: list[str] = []
        """Directories that are read-only as a whole, as they hold too many repositories."""
        self.notes: list[str] = []
        self._tops: dict[str, set[str]] = {}
        """Git directories that were looked at, with the working trees that use them."""
        self._named = self._depth = 0

    @property
    def surveyed_git_directories(self) -> tuple[str, ...]:
        """The git directories that were looked at."""
        return tuple(self._tops)

    def collect_git_rules(self) -> None:
        self._find_repositories(self.project, 3)
        status = self.files.status_if_present(f"{self.project}/.git")
        if status is None and self.project not in self._tops:
            self._show_parent_repository()
        elif status is not None and not S_ISLNK(status.st_mode):  # a link may be a command's
            git = self.files.follow_pointer(f"{self.project}/.git")
            if self._borrows and git is not None and self.files.is_writable(git):
                self._show_alternates(self.files.common_of(git) or git)
        for place in self.places[1:]:
            self._find_repositories(place, 2)

    # --- rules

    def _add_git_rule(self, access: str, path: str, reason: str, text: bytes = b"") -> None:
        if any(is_at_or_below(path, whole) for whole in self._whole):
            return
        known = self.rules.get(path)
        if known is None or (known.access == ANCHOR and access != ANCHOR) or (known.access == WRITE and access == READ):
            self.rules[path] = GitRule(access, path, reason, text)
            self._check_budget()

    def _check_budget(self) -> None:
        """Where commands made very many repositories, one rule for the directory that holds most of them: a start must not become impossible."""
        if len(self.rules) <= 2 * self.budget:
            return
        count: dict[str, int] = {}
        for path in self.rules:
            place = next((place for place in self.places if path.startswith(place + "/")), "")
            top = f"{place}/{path[len(place) + 1 :].partition('/')[0]}"
            if place and top != f"{place}/.git":
                count[top] = count.get(top, 0) + 1
        most = max(count, key=lambda top: count[top], default="")
        if not most or count[most] < 2:
            if len(self.rules) <= 8 * self.budget:
                return
            what = f"git repositories that a shell could write in {self.project} need more than {8 * self.budget} mounts"
            raise CannotStartError(what, "`find . -name .git` shows them: remove those that a command made, or start the shell in one of them")
        self._whole.append(most)
        self.rules = {path: rule for path, rule in self.rules.items() if not is_at_or_below(path, most)}
        self.rules[most] = GitRule(READ, most, "it holds very many git repositories")

    def _protect_path(self, path: str, reason: str) -> None:
        """READ for what is at a path. Of a link, which a mount cannot cover: for what it leads to, where that is writable."""
        status = self.files.status_if_present(path)
        if status is not None and not S_ISLNK(status.st_mode):
            self._add_git_rule(READ, path, reason)
        elif status is not None:
            self._protect_named(self.files.resolve_physical_path(path), f"{reason} (by the link {path}, which itself cannot be protected)")

    def _protect_named(self, path: str | None, reason: str) -> bool:
        """READ for what a setting or a link names, where it is writable, and no place and no git directory as a whole; whether there is a rule."""
        if path is None or not self.files.is_writable(path) or any(is_at_or_below(other, path) for other in (*self.places, *self._tops)):
            return False
        self._add_git_rule(READ, path, reason)
        return True

    def finish_git_rules(self) -> tuple[GitRule, ...]:
        """The rules, shallow before deep, without those that a READ above makes needless, and with an ANCHOR for each directory on the way."""
        for path in [path for path, rule in self.rules.items() if rule.access != COPY]:
            way, at = [], parent_of(path)
            while at != "/" and at not in self.rules and at not in self.places:
                way.append(at)
                at = parent_of(at)
            for directory in way if at != "/" else ():
                self.rules[directory] = GitRule(ANCHOR, directory, "what is protected below must stay where it is")
        self._check_budget()
        found: list[GitRule] = []
        above: list[GitRule] = []
        for rule in sorted(self.rules.values(), key=lambda rule: rule.path.split("/")):
            while above and not is_at_or_below(rule.path, above[-1].path):
                above.pop()
            if rule.access != COPY:
                if above and above[-1].access == READ and rule.access != WRITE:
                    continue
                above.append(rule)
            found.append(rule)
        return tuple(found)

    # --- repositories that are writable

    def _find_repositories(self, place: str, depth: int) -> None:
        """Find repositories, shallow ones first: what commands make far below keeps no one near the top from being found."""
        left, level = MOST_DIRECTORIES, [place]
        for deeper in range(depth, -1, -1):
            below: list[str] = []
            for directory in level[:left]:
                names = self.files.list_directory_names(directory)
                if len(names) > MOST_NAMES:
                    names.update({name: True for name in (".git", "HEAD", "objects", "refs") if self.files.is_present(f"{directory}/{name}")})
                if ".git" in names:
                    self._inspect_working_tree(directory)
                if "HEAD" in names and "objects" in names and "refs" in names:
                    self._protect_repository(directory, directory)
                elif deeper and len(below) < MOST_DIRECTORIES:
                    below += [f"{directory}/{name}" for name, is_directory in names.items() if is_directory and name not in _SKIPPED]
            left -= min(left, len(level))
            level = below

    def _inspect_working_tree(self, top: str) -> None:
        """A working tree: its `.git` is a directory, a file that leads to one (setup.c, read_gitfile_gently), or a link."""
        path = f"{top}/.git"
        status = self.files.status_if_present(path)
        if status is None or S_ISDIR(status.st_mode):
            self._protect_repository(path, top)
            return
        if not S_ISLNK(status.st_mode):
            self._add_git_rule(READ, path, "it leads git on the host to settings and hooks")
        git = self.files.follow_pointer(path)
        if git is not None and self.files.is_writable(git):
            self._protect_repository(git, top)
        elif top == self.project:
            self._show_outside(top, git)

    def _protect_repository(self, git: str, top: str, access: str = ANCHOR) -> None:
        """Rules for a git directory, whose settings name files below `top`."""
        tops = self._tops.setdefault(git, set())
        if top in tops or len(tops) >= MOST_ENTRIES:
            return
        tops.add(top)
        self._depth += 1
        if len(tops) == 1:
            self._protect_parts(git, top, access)
        for name in ("config", "config.worktree"):
            self._follow_settings(f"{git}/{name}", top, _DEEPEST_INCLUDE, set())
        self._depth -= 1

    def _protect_parts(self, git: str, top: str, access: str) -> None:
        many = len(self.rules) > self.budget * 2 // 3 or self._depth > _DEEPEST_REPOSITORY
        if many and access == ANCHOR and git not in self.places:
            self._add_git_rule(READ, git, "one of very many git directories")
            return
        names = self.files.list_directory_names(git)
        if git not in self.places:
            self._add_git_rule(access, git, "another git directory in its place would have other hooks")
        for part, reason in _FOLLOWED:
            if part.partition("/")[0] in names or len(names) > MOST_NAMES:
                self._protect_path(f"{git}/{part}", reason)
        self._protect_hooks(f"{git}/hooks")
        self._protect_worktrees(git)
        if self.files.is_present(f"{git}/modules") and not self._protect_modules(f"{git}/modules", _DEEPEST_MODULE, [_MOST_MODULES]):
            self._add_git_rule(READ, f"{git}/modules", "one rule for very many directories")
        common = self.files.common_of(git)
        if common is not None and common != git and self.files.is_writable(common):
            self._protect_repository(common, top)

    def _protect_hooks(self, hooks: str) -> None:
        """A directory of hooks, and what hooks lead to that are links, as to a script of the project's."""
        self._protect_path(hooks, "git on the host runs hooks")
        real = self.files.resolve_physical_path(hooks)
        for name, is_directory in self.files.list_directory_names(real, _MOST_HOOKS).items() if real is not None else ():
            if not is_directory and not name.endswith(".sample"):
                target = self.files.resolve_physical_path(f"{real}/{name}")
                if target != f"{real}/{name}":
                    self._protect_named(target, "git on the host runs hooks")

    def _protect_worktrees(self, git: str) -> None:
        """Entries of linked worktrees. Those of working trees elsewhere are READ, and with their `.git` files shown, git does not take them for stale."""
        entries = self.files.list_directory_names(f"{git}/worktrees", MOST_ENTRIES)
        if len(entries) > MOST_ENTRIES:
            self._add_git_rule(READ, f"{git}/worktrees", "one rule for very many worktrees")
        for name in list(entries)[:MOST_ENTRIES]:
            entry = f"{git}/worktrees/{name}"
            line = self.files.read_pointer_line(f"{entry}/gitdir")
            above = self.files.resolve_physical_path(parent_of(join_path(entry, line))) if line.endswith("/.git") else None
            if above is not None and (self.files.is_writable(above) or above in self._tops[git]):
                self._protect_repository(entry, above)
                self._protect_repository(git, above)
                continue
            self._protect_path(entry, "the entry of another worktree")
            text = self.files.read_git_file(f"{above}/.git") if above is not None else b""
            # Commands can make entries that name any file: it must lead to this very entry.
            if text.startswith(b"gitdir: ") and self.files.follow_pointer(f"{above}/.git") == entry:
                self._add_git_rule(COPY, f"{above}/.git", "without it git takes another worktree for stale", text)

    def _protect_modules(self, directory: str, depth: int, left: list[int]) -> bool:
        """Git directories of submodules, below the parts of their names; whether all were found."""
        for name, is_directory in self.files.list_directory_names(directory, _MOST_MODULES).items():
            path = f"{directory}/{name}"
            left[0] -= 1
            if left[0] < 0 or not depth:
                return False
            if is_directory and self.files.is_present(f"{path}/HEAD"):
                self._protect_repository(path, self.files.worktree_of(path) or path)
            elif is_directory and not self._protect_modules(path, depth - 1, left):
                return False
        return True

    def _follow_settings(self, path: str, top: str, depth: int, seen: set[str]) -> None:
        """READ for what settings name: other settings (from the directory of the file), hooks and programs (from the top of the working tree)."""
        real = self.files.resolve_physical_path(path)
        if real is None or real in seen or not depth or not (self.files.is_writable(real) or depth == _DEEPEST_INCLUDE):
            return
        seen.add(real)
        for setting in self.files.read_git_settings(real):
            kind, value = named_kind(setting), setting[3] or ""
            if kind == COMMAND:
                self._protect_words(value, top)
            elif kind is not None and self._named < _MOST_NAMED:
                self._named += 1
                named = join_path(parent_of(path) if kind == INCLUDE else top, f"{self.home}/{value[2:]}" if value.startswith("~/") else value)
                if (
                    self._protect_named(self.files.resolve_physical_path(named), "git on the host follows it, as settings of a repository say")
                    and setting[2] == "hookspath"
                ):
                    self._protect_hooks(named)
                if kind == INCLUDE:
                    self._follow_settings(named, top, depth - 1, seen)

    def _protect_words(self, command: str, top: str) -> None:
        """READ for the files among the words of a command line that git runs."""
        for word, is_file in split_command(command):
            self._named += 1
            named = (
                self.files.resolve_physical_path(join_path(top, f"{self.home}/{word[2:]}" if word.startswith("~/") else word))
                if self._named < _MOST_NAMED
                else None
            )
            status = self.files.status_if_present(named) if named is not None and self.files.is_writable(named) else None
            if status is not None and S_ISREG(status.st_mode) and (is_file or status.st_mode & 0o111):
                self._protect_named(named, "git on the host runs it, as settings of a repository say")

    # --- git directories outside

    def _is_private(self, path: str, *others: str) -> bool:
        """Whether a directory must not be shown: it is or holds the home, the state directory or one of `others`, or is the system's."""
        return path in _SYSTEM or any(is_at_or_below(other, path) for other in (self.home, self.kept, *others)) or is_at_or_below(path, self.kept)

    def _show_outside(self, top: str, git: str | None) -> None:
        """The git directory of a linked worktree or a submodule, where it names this working tree: a pointer alone may be a command's."""
        if git is None:
            self.notes.append(f"git does not work here: {top}/.git leads to no directory")
            return
        common = None if self._is_private(git, self.project) else self.files.common_of(git)
        if common == git and self.files.worktree_of(git) == top:
            self._show_git(git, top)
        elif common is not None and common != git and parent_of(git) == f"{common}/worktrees" and not self._is_private(common, self.project):
            line = self.files.read_pointer_line(f"{git}/gitdir")
            if line and self.files.resolve_physical_path(join_path(git, line)) == f"{top}/.git":
                self._show_common(common, git, top)
                return
            self.notes.append(f"git does not work here: {git} does not name this working tree; if you moved it here: git -C {quote_path(top)} worktree repair")
            return
        if git not in self._tops:
            self.notes.append(f"git does not work here: {top}/.git leads out of the project; grant it: paths: [{{path: {common or git}, access: write}}]")

    def _show_common(self, common: str, own: str, top: str) -> None:
        """The common directory of a linked worktree: READ, but for what git writes from there."""
        self._protect_repository(common, top, READ)
        self._show_alternates(common)
        for name in _SHARED:
            status = self.files.status_if_present(f"{common}/{name}")
            if status is not None and S_ISDIR(status.st_mode):
                self._add_git_rule(WRITE, f"{common}/{name}", "git writes there from a linked worktree")
        if not self.files.is_present(f"{common}/logs"):
            self.notes.append(f"git cannot commit here before this: mkdir {quote_path(f'{common}/logs')}")
        is_open = self.files.uses_worktree_settings(common) and not self.files.is_present(f"{own}/config.worktree")
        if is_open:
            self.notes.append(f"git only reads here, as commands could make settings, before this: touch {quote_path(f'{own}/config.worktree')}")
        self._protect_repository(own, top, READ if is_open else WRITE)
        self._add_git_rule(READ if is_open else WRITE, own, "the linked worktree's own entry")

    def _show_git(self, git: str, top: str) -> None:
        """A git directory that belongs to this working tree alone. Git makes locks at its top, so it is writable where nothing dangerous can be made there."""
        missing = self.files.find_missing(git)
        if missing:
            self.notes.append(f"git only reads here, as commands could make what git on the host follows, before this: {' && '.join(missing)}")
        self._protect_repository(git, top, READ if missing else WRITE)
        self._show_alternates(git)
        if not missing and not self.files.is_present(f"{git}/info/attributes"):
            self._add_git_rule(READ, f"{git}/info", "attributes there would make git on the host run filters")

    def _show_parent_repository(self) -> None:
        """A project that is a directory of a larger repository: the whole working tree READ, as git takes what is not there for deleted."""
        top, status = parent_of(self.project), None
        while not self._is_private(top) and not self.files.is_writable(top):
            status = self.files.status_if_present(f"{top}/.git")
            if status is not None:
                break
            top = parent_of(top)
        owner = self.files.status_if_present(top)
        # Of others' repositories git itself refuses to use (safe.directory).
        if status is None or owner is None or {status.st_uid, owner.st_uid} - {self.uid, 0}:
            return
        git = f"{top}/.git" if S_ISDIR(status.st_mode) else self.files.follow_pointer(f"{top}/.git")
        if S_ISDIR(status.st_mode) or (git is not None and is_at_or_below(git, top)):
            self._show_git(git or top, top)
        else:
            self._show_outside(top, git)
        if self._tops:
            self._add_git_rule(READ, top, "the working tree that the project is a part of: git takes what is not there for deleted")
            self._add_git_rule(WRITE, self.project, "the project")

    def _show_alternates(self, git: str) -> None:
        """READ for object directories outside that a repository borrows from one which its settings name as a remote, too.

        A list alone may be a command's, and would show any repository of this user's; settings are protected since they are there.
        """
        remotes: set[str] = set()
        wanted = self._alternate_stores(f"{git}/objects")
        for section, _, key, value in self.files.read_git_settings(f"{git}/config") if wanted else ():
            if section == "remote" and key == "url" and value and len(remotes) < MOST_ENTRIES:
                remote = self.files.resolve_physical_path(join_path(git, value.removeprefix("file://")))
                remotes |= {f"{remote}/objects", f"{remote}/.git/objects"}
        for store in wanted:
            if store not in remotes:
                self.notes.append(f"git lacks objects that it borrows; grant them: paths: [{{path: {store}, access: read}}]")
                continue
            borrowed, depth = [store], 0
            while borrowed and depth <= _DEEPEST_ALTERNATE:
                for other in borrowed:
                    self._add_git_rule(READ, other, "objects that the repository of the project borrows")
                borrowed, depth = [other for at in borrowed for other in self._alternate_stores(at) if other not in self.rules][:MOST_ENTRIES], depth + 1

    def _alternate_stores(self, objects: str) -> list[str]:
        return [store for store in self.files.read_alternates(objects)[:MOST_ENTRIES] if not self._is_private(store, *self.places)]
