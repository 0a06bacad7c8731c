"""Table of the system calls that a box refuses, with their numbers on each architecture.

Numbers are those of Linux 6.12: `asm/unistd_64.h` for x86_64, `asm-generic/unistd.h` for aarch64. None marks a call
that an architecture does not have.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

Numbers: TypeAlias = tuple[int | None, int | None]
"""Numbers of one system call on x86_64 and on aarch64."""

LAST: Final = 462
"""Number of the last system call that this table knows of (mseal), on both architectures."""

INSPECTION: Final[Mapping[str, Numbers]] = MappingProxyType(
    {
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "process_madvise": (440, 440),
        "process_mrelease": (448, 448),
        "pidfd_getfd": (438, 438),
        "kcmp": (312, 272),
        "userfaultfd": (323, 282),
        "perf_event_open": (298, 241),
    }
)
"""Access to the memory, the descriptors and the state of other processes."""
KERNEL: Final[Mapping[str, Numbers]] = MappingProxyType(
    {
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        "io_uring_setup": (425, 425),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
        "bpf": (321, 280),
        "init_module": (175, 105),
        "finit_module": (313, 273),
        "delete_module": (176, 106),
        "kexec_load": (246, 104),
        "kexec_file_load": (320, 294),
        "reboot": (169, 142),
        "swapon": (167, 224),
        "swapoff": (168, 225),
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
        "acct": (163, 89),
        "settimeofday": (164, 170),
        "clock_settime": (227, 112),
        "clock_adjtime": (305, 266),
        "adjtimex": (159, 171),
        "syslog": (103, 116),
        "vhangup": (153, 58),
        "iopl": (172, None),
        "ioperm": (173, None),
        "modify_ldt": (154, None),
        "sethostname": (170, 161),
        "setdomainname": (171, 162),
        "lookup_dcookie": (212, 18),
        "nfsservctl": (180, 42),
        "uselib": (134, None),
        "ustat": (136, None),
        "sysfs": (139, None),
        "_sysctl": (156, None),
    }
)
"""Keys, modules, programs in the kernel, swap, quotas, clocks and the machine itself."""
NAMESPACES: Final[Mapping[str, Numbers]] = MappingProxyType(
    {
        "mount": (165, 40),
        "umount2": (166, 39),
        "pivot_root": (155, 41),
        "chroot": (161, 51),
        "move_mount": (429, 429),
        "open_tree": (428, 428),
        "fsopen": (430, 430),
        "fsconfig": (431, 431),
        "fsmount": (432, 432),
        "fspick": (433, 433),
        "mount_setattr": (442, 442),
        "statmount": (457, 457),
        "listmount": (458, 458),
        "unshare": (272, 97),
        "setns": (308, 268),
        "open_by_handle_at": (304, 265),
        "name_to_handle_at": (303, 264),
    }
)
"""Mounts, namespaces and files by handle, which lead out of the box."""
SCHEDULING: Final[Mapping[str, Numbers]] = MappingProxyType(
    {
        "sched_setaffinity": (203, 122),
        "sched_setscheduler": (144, 119),
        "sched_setparam": (142, 118),
        "sched_setattr": (314, 274),
        "setpriority": (141, 140),
        "ioprio_set": (251, 30),
        "migrate_pages": (256, 238),
        "move_pages": (279, 239),
        "mbind": (237, 235),
        "set_mempolicy": (238, 237),
        "set_mempolicy_home_node": (450, 450),
    }
)
"""Scheduling, affinity, priorities and the placement of memory."""
MEMORY: Final[Mapping[str, Numbers]] = MappingProxyType(
    {
        "memfd_create": (319, 279),
        "memfd_secret": (447, 447),
        "msgget": (68, 186),
        "msgsnd": (69, 189),
        "msgrcv": (70, 188),
        "msgctl": (71, 187),
        "shmget": (29, 194),
        "shmat": (30, 196),
        "shmdt": (67, 197),
        "shmctl": (31, 195),
        "semget": (64, 190),
        "semop": (65, 193),
        "semctl": (66, 191),
        "semtimedop": (220, 192),
        "mq_open": (240, 180),
        "mq_unlink": (241, 181),
        "mq_timedsend": (242, 182),
        "mq_timedreceive": (243, 183),
        "mq_notify": (244, 184),
        "mq_getsetattr": (245, 185),
    }
)
"""Memory and messages that belong to no process, and so to no limit."""
NOTIFICATION: Final[Mapping[str, Numbers]] = MappingProxyType(
    {
        "inotify_init": (253, None),
        "inotify_init1": (294, 26),
        "inotify_add_watch": (254, 27),
        "inotify_rm_watch": (255, 28),
        "fanotify_init": (300, 262),
        "fanotify_mark": (301, 263),
    }
)
"""Watches over files, whose number is limited for the whole user."""
METADATA: Final[Mapping[str, Numbers]] = MappingProxyType(
    {
        "chmod": (90, None),
        "fchmod": (91, 52),
        "fchmodat": (268, 53),
        "fchmodat2": (452, 452),
        "chown": (92, None),
        "fchown": (93, 55),
        "lchown": (94, None),
        "fchownat": (260, 54),
        "utime": (132, None),
        "utimes": (235, None),
        "futimesat": (261, None),
        "utimensat": (280, 88),
        "setxattr": (188, 5),
        "lsetxattr": (189, 6),
        "fsetxattr": (190, 7),
        "removexattr": (197, 14),
        "lremovexattr": (198, 15),
        "fremovexattr": (199, 16),
        "mknod": (133, None),
        "mknodat": (259, 33),
    }
)
"""Changes of owner, mode, times and attributes, and special files, which Landlock does not cover."""
CONDITIONAL: Final[Mapping[str, Numbers]] = MappingProxyType(
    {
        "fallocate": (285, 47),
        "clone": (56, 220),
        "clone3": (435, 435),
        "socket": (41, 198),
        "socketpair": (53, 199),
        "ioctl": (16, 29),
        "prlimit64": (302, 261),
    }
)
"""Calls whose arguments decide, or that are refused with a code of their own."""
