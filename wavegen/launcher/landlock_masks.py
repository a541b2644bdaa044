"""Which rights of Landlock a kernel can take away, as the numbers that the kernel wants. The only table of them: what runs inside has none.

landlock(7) and include/uapi/linux/landlock.h: each kernel says by one number, its ABI, which rights it knows. A ruleset must hold no right that the
kernel does not know, and none that nobody asked for: what a ruleset handles and does not grant is denied.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

FILES, NET, SCOPE = 0, 1, 2
RIGHTS = {
    "execute": (FILES, 0, 1), "write_file": (FILES, 1, 1), "read_file": (FILES, 2, 1), "read_dir": (FILES, 3, 1),
    "remove_dir": (FILES, 4, 1), "remove_file": (FILES, 5, 1), "make_char": (FILES, 6, 1), "make_dir": (FILES, 7, 1),
    "make_reg": (FILES, 8, 1), "make_sock": (FILES, 9, 1), "make_fifo": (FILES, 10, 1), "make_block": (FILES, 11, 1),
    "make_sym": (FILES, 12, 1), "refer": (FILES, 13, 2), "truncate": (FILES, 14, 3), "ioctl_dev": (FILES, 15, 5), "resolve_unix": (FILES, 16, 9),
    "bind_tcp": (NET, 0, 4), "connect_tcp": (NET, 1, 4), "bind_udp": (NET, 2, 10), "connect_send_udp": (NET, 3, 10),
    "abstract": (SCOPE, 0, 6), "signal": (SCOPE, 1, 6),
}  # fmt: skip
"""Each right: of what kind, its bit, and the first ABI that knows it."""
READS = ("execute", "read_file", "read_dir")
WRITES = (
    "write_file", "remove_dir", "remove_file", "make_char", "make_dir", "make_reg", "make_sock", "make_fifo", "make_block", "make_sym", "refer", "truncate",
)  # fmt: skip
SCOPES = ("abstract", "signal")
TCP, UDP = ("bind_tcp", "connect_tcp"), ("bind_udp", "connect_send_udp")
BESIDE_MOUNTS = (*WRITES, *SCOPES)
"""Where mounts decide what is read: Landlock is a second opinion on writes, and keeps signals and abstract sockets in."""
INSTEAD_OF_MOUNTS = (*READS, *WRITES, "ioctl_dev", "resolve_unix", *SCOPES)
"""Where there are no mounts, Landlock decides everything. Below ABI 9 or 5 the launcher says what `missing_rights` says."""

_OF_A_FILE = ("execute", "write_file", "read_file", "truncate", "ioctl_dev", "resolve_unix")
"""The kernel refuses (EINVAL) a rule about anything but a directory that has more."""
_LINUX = {1: "5.13", 2: "5.19", 3: "6.2", 4: "6.7", 5: "6.10", 6: "6.12", 9: "7.1", 10: "7.2"}
_SAID = {
    "truncate": "truncation of files",
    "ioctl_dev": "device controls (ioctl)",
    "resolve_unix": "named sockets",
    "bind_tcp": "listening TCP ports",
    "connect_tcp": "TCP connections",
    "bind_udp": "UDP ports",
    "connect_send_udp": "UDP messages",
    "abstract": "abstract sockets",
    "signal": "signals to other programs",
}


def landlock_mask(kind: int, names: Collection[str], abi: int) -> int:
    """These rights, of this kind, as far as a kernel with this ABI knows them."""
    return sum(1 << RIGHTS[name][1] for name in names if RIGHTS[name][0] == kind and RIGHTS[name][2] <= abi)


def landlock_masks(names: Collection[str]) -> str:
    """What a kernel of each ABI shall take away, in one word: ABI:FILES:FILE:NET:SCOPE:READ:READFILE, and more of them after commas, in ascending order.

    FILES is handled, and granted where the command writes; FILE is granted instead where that is no directory; READ and READFILE are granted where the
    command reads. The kernel is given the highest entry that is no newer than itself.
    """
    own, read = set(names), set(names) & set(READS)
    of_a_file, read_of_a_file = own & set(_OF_A_FILE), read & set(_OF_A_FILE)
    entries = []
    for abi in sorted({RIGHTS[name][2] for name in names}):
        masks = (
            landlock_mask(kind, of, abi) for kind, of in ((FILES, own), (FILES, of_a_file), (NET, own), (SCOPE, own), (FILES, read), (FILES, read_of_a_file))
        )
        entries.append(":".join((str(abi), *map(hex, masks))))
    return ",".join(entries)


def least_abi(names: Collection[str]) -> int:
    """The oldest ABI that knows all of these rights: for `--least-abi`, where nothing of them may be missing."""
    return max((RIGHTS[name][2] for name in names), default=0)


def missing_rights(abi: int, names: Collection[str]) -> list[str]:
    """A sentence for each thing that a kernel with this ABI cannot restrict. ABI 0: it has no Landlock."""
    if not abi:
        return ["the kernel has no Landlock, or it is not switched on (boot with lsm=landlock,...)"] if names else []
    found = []
    for name in names:
        since = RIGHTS[name][2]
        if name == "refer" and since > abi:  # until then the kernel denies them to whoever it restricts
            found.append(f"the kernel's Landlock (ABI {abi}) refuses every move and hard link between directories (allowed since ABI 2, Linux 5.19)")
        elif since > abi:
            found.append(f"the kernel's Landlock (ABI {abi}) cannot restrict {_SAID[name]} (needs ABI {since}, Linux {_LINUX[since]})")
    return found
