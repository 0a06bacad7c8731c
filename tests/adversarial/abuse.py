"""Table of abuses: what a program tries from its box, and which levels admit it.

A row is Python code that raises OSError if it was stopped. Its names are those of `attacker.py`: `call` makes a system
call, and raises unless it came through to the kernel; `secret`, `outside`, `bystander`, `port`, … are what stands
outside of the box. No row harms the machine where it succeeds: it opens without writing, signals with 0, names what is
not there, or undoes what it did.
"""

from typing import Final

from portico.domain.tools import IsolationLevel
from portico.domain.value import value

STAT: Final = "at `landlock` a program can see that a path exists, and its size"
OWN_FILES: Final = "`limits` stops accidents, not attacks"


@value
class Abuse:
    """One row: its name, its code, and the levels that let it through, with the sentence of the docs that says so."""

    name: str
    code: str
    admitted_at: frozenset[IsolationLevel] = frozenset()
    sentence: str = ""


FILES: Final = (
    Abuse("read a file outside", "open(secret).read()"),
    Abuse("list a directory outside", "os.listdir(outside)"),
    Abuse("look at a file outside", "os.stat(secret)", frozenset({IsolationLevel.LANDLOCK}), STAT),
    Abuse("change a file outside", "open(secret, 'r+')"),
    Abuse("append to a file outside", "open(secret, 'a')"),
    Abuse("truncate a file outside", "os.truncate(secret, os.stat(secret).st_size)"),
    Abuse("make a file outside", "open(outside + '/new', 'w'); os.unlink(outside + '/new')"),
    Abuse("make a directory outside", "os.mkdir(outside + '/dir'); os.rmdir(outside + '/dir')"),
    Abuse("make a link outside", "os.symlink('x', outside + '/link'); os.unlink(outside + '/link')"),
    Abuse("make a FIFO outside", "os.mkfifo(outside + '/fifo'); os.unlink(outside + '/fifo')"),
    Abuse("rename a file outside", "os.rename(secret, secret + '2'); os.rename(secret + '2', secret)"),
    Abuse("remove a file outside", "open(outside + '/victim').close(); os.unlink(outside + '/victim')"),
    Abuse("link a file outside into the home", "os.link(secret, home + '/hard'); open(home + '/hard').read()"),
    Abuse("follow a link that leads outside", "os.symlink(secret, home + '/soft'); open(home + '/soft').read()"),
    Abuse("climb out by ..", "open(home + '/' + '../' * 20 + secret).read()"),
    Abuse("run a program outside", "os.execv(outside + '/program', ['program'])"),
    Abuse("change a mode outside", "os.chmod(secret, 0o644)"),
    Abuse("change an owner outside", "os.chown(secret, -1, -1)"),
    Abuse("change the times outside", "os.utime(secret)"),
    Abuse("set an attribute outside", "os.setxattr(secret, 'user.x', b'1')"),
    Abuse("remove an attribute outside", "os.removexattr(secret, 'user.y')"),
    Abuse("read the shadow file", "open('/etc/shadow').read()"),
    Abuse("write the user list", "open('/etc/passwd', 'a')"),
    Abuse("write a program of the system", "open('/usr/bin/env', 'r+b')"),
    Abuse("make a file of the system", "open('/usr/lib/portico-test', 'w'); os.unlink('/usr/lib/portico-test')"),
    Abuse("read the system's data", "os.listdir('/var/lib')"),
    Abuse("read shared memory outside", "open(shared).read()"),
    Abuse("write shared memory outside", "open(shared, 'r+')"),
    Abuse("read the environment of the service", "open(f'/proc/{service}/environ').read()"),
    Abuse("read the memory of the service", "open(f'/proc/{service}/mem', 'rb')"),
    Abuse("see files through the service", "open(f'/proc/{service}/root{secret}').read()"),
    Abuse("see files through its directory", "os.listdir(f'/proc/{service}/cwd/')"),
    Abuse("list the descriptors of the service", "os.listdir(f'/proc/{service}/fd')"),
    Abuse("open a descriptor of the service", "open(f'/proc/{service}/fd/0')"),
    Abuse("change how the kernel kills", "open(f'/proc/{service}/oom_score_adj', 'r+')"),
    Abuse("set the core pattern", "open('/proc/sys/kernel/core_pattern', 'w')"),
    Abuse("set a bound of the kernel", "open('/proc/sys/kernel/pid_max', 'w')"),
    Abuse("press a magic key", "open('/proc/sysrq-trigger', 'w')"),
    Abuse("read the kernel's memory", "open('/proc/kcore', 'rb')"),
    Abuse("write below /sys", "open('/sys/power/state', 'w')"),
    Abuse("read the kernel's log", "os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)"),
    Abuse("open the machine's memory", "open('/dev/mem', 'rb')"),
    Abuse(
        "make a device", "os.mknod(home + '/disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0)); os.unlink(home + '/disk')"
    ),
    Abuse("write to the box's /dev", "open('/dev/full-of-it', 'w').write('x')"),
    Abuse("open a file by its handle", "call('open_by_handle_at', -1, 0, 0)"),
    Abuse("take a file's handle", "call('name_to_handle_at', -100, 0, 0, 0, 0)"),
)
PROCESSES: Final = (
    Abuse("signal the service", "os.kill(service, 0)"),
    Abuse("signal a process outside", "os.kill(bystander, 0)"),
    Abuse("signal a group outside", "os.killpg(bystander, 0)"),
    Abuse("signal a thread outside", "call('tgkill', bystander, bystander, 0)"),
    Abuse("queue a signal outside", "reached(os.kill, bystander, signal.SIGCONT)"),
    Abuse("signal by a descriptor", "signal.pidfd_send_signal(os.pidfd_open(bystander), signal.SIGCONT)"),
    Abuse("trace a process outside", "call('ptrace', 0x4206, bystander, 0, 0); call('ptrace', 17, bystander, 0, 0)"),
    Abuse("read memory of another", "call('process_vm_readv', bystander, 0, 0, 0, 0, 0)"),
    Abuse("write memory of another", "call('process_vm_writev', bystander, 0, 0, 0, 0, 0)"),
    Abuse("take a descriptor of another", "call('pidfd_getfd', os.pidfd_open(bystander), 0, 0)"),
    Abuse("compare with another", "call('kcmp', bystander, bystander, 0, 0, 0)"),
    Abuse("lower the limits of the service", "call('prlimit64', service, 7, 0, 0)"),
    Abuse("bind the service to a core", "call('sched_setaffinity', service, 0, 0)"),
    Abuse("change how the service is scheduled", "call('sched_setscheduler', service, 99, 0)"),
    Abuse("lower the service's priority", "os.setpriority(os.PRIO_PROCESS, service, os.getpriority(0, service))"),
    Abuse("change the service's disk priority", "call('ioprio_set', 1, service, 99999)"),
    Abuse("move the service's memory", "call('migrate_pages', service, 0, 0, 0)"),
    Abuse("become another user", "os.setuid(12345)"),
    Abuse("raise a limit", "resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))"),
    Abuse(
        "take a capability back", "call('capset', struct_of('Ii', 0x20080522, 0), struct_of('6I', 32, 32, 32, 0, 0, 0))"
    ),
)
NAMESPACES: Final = (
    *(
        Abuse(f"a namespace of its own: {name}", f"call('unshare', {flag:#x})")
        for name, flag in {
            "users": 0x10000000,
            "mounts": 0x20000,
            "processes": 0x20000000,
            "network": 0x40000000,
            "names": 0x4000000,
        }.items()
    ),
    Abuse("a child in a user namespace", "child_of(call('clone', 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))"),
    Abuse("a child by the newer call", "call('clone3', 0, 0)"),
    Abuse("enter the service's namespace", "call('setns', os.open(f'/proc/{service}/ns/net', os.O_RDONLY), 0)"),
    Abuse("mount", "call('mount', b'none', home.encode(), b'no-such-type', 0, 0)"),
    Abuse("unmount", "call('umount2', b'/no/such/place', 0)"),
    Abuse("mount in the newer way", "call('fsopen', b'no-such-type', 0)"),
    Abuse("copy a tree of mounts", "os.close(call('open_tree', -100, b'/', 1))"),
    Abuse("change a mount", "call('mount_setattr', -1, b'', 0, 0, 0)"),
    Abuse("move a mount", "call('move_mount', -1, b'', -1, b'', 0)"),
    Abuse("change the root", "call('chroot', b'/no/such/place')"),
    Abuse("swap the root", "call('pivot_root', b'/no/such/place', b'/no/such/place')"),
)
KERNEL: Final = (
    Abuse("use keys", "call('keyctl', 0, -3, 0)"),
    Abuse("ask for a key", "call('request_key', b'user', b'no such key', 0, 0)"),
    Abuse("open an io_uring", "os.close(call('io_uring_setup', 1, bytes(120)))"),
    Abuse("load a program into the kernel", "call('bpf', 9999, 0, 0)"),
    Abuse("count events of the machine", "call('perf_event_open', 0, 0, -1, -1, 0)"),
    Abuse("handle page faults", "os.close(call('userfaultfd', 1))"),
    Abuse("load a module", "call('finit_module', -1, b'', 0)"),
    Abuse("load another kernel", "call('kexec_load', 0, 0, 0, 0xFFFF)"),
    Abuse("restart the machine", "call('reboot', 0, 0, 0, 0)"),
    Abuse("use a file as swap", "call('swapon', b'/no/such/file', 0)"),
    Abuse("stop swapping", "call('swapoff', b'/no/such/file')"),
    Abuse("set a quota", "call('quotactl', 0, 0, 0, 0)"),
    Abuse("account processes", "call('acct', b'/no/such/file')"),
    Abuse("set the clock", "call('clock_settime', 9999, 0)"),
    Abuse("set the time of day", "call('settimeofday', 0, 0)"),
    Abuse("name the machine", "call('sethostname', b'', -1)"),
    Abuse("read the kernel's buffer", "call('syslog', 10, 0, 0)"),
    Abuse("change the local descriptor table", "call('modify_ldt', 0, 0, 0)"),
    Abuse("use ports of the machine", "call('ioperm', 0, 0, 0)"),
    Abuse("make memory without a process", "os.close(os.memfd_create('x'))"),
    Abuse("make a shared segment", "call('shmctl', call('shmget', 0, 4096, 0o600), 0, 0)"),
    Abuse("make semaphores", "call('semctl', call('semget', 0, 1, 0o600), 0, 0)"),
    Abuse("make a message queue", "call('msgctl', call('msgget', 0, 0o600), 0, 0)"),
    Abuse("open a named queue", "call('mq_unlink', b'no-such-queue')"),
    Abuse("watch files", "os.close(call('inotify_init1', 0))"),
    Abuse("watch the file system", "os.close(call('fanotify_init', 0, 0))"),
    Abuse("reserve disk at once", "call('fallocate', os.open(home + '/big', os.O_CREAT | os.O_RDWR), 0, 0, 4096)"),
    Abuse("type into a terminal", "call('ioctl', 0, 0x5412, b'x')"),
    Abuse("paste into a console", "call('ioctl', 0, 0x541C, b'x')"),
    Abuse("replace the terminal's discipline", "call('ioctl', 0, 0x5423, 0)"),
)
NETWORK: Final = (
    Abuse("connect to loopback", "socket.create_connection(('127.0.0.1', port), 1)"),
    Abuse("connect over the newer protocol", "socket.socket(socket.AF_INET6)"),
    Abuse("listen", "socket.create_server(('127.0.0.1', 0))"),
    Abuse("send a datagram", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', port))"),
    Abuse("open a raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    Abuse("open a packet socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    Abuse("ask the kernel about the network", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"),
    Abuse("use the kernel's cryptography", "socket.socket(38, socket.SOCK_SEQPACKET)"),
    Abuse("reach the hypervisor", "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"),
    Abuse("connect to a socket outside", "unix_client(outside + '/socket')"),
    Abuse("connect to a name outside", "unix_client(chr(0) + abstract)"),
    Abuse(
        "reconnect a pair", "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].connect(outside + '/datagrams')"
    ),
)
TABLE: Final = (*FILES, *PROCESSES, *NAMESPACES, *KERNEL, *NETWORK)
