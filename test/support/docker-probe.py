"""Looks at a sandbox from inside and prints what it found as one line of JSON. Argument: a file with what to try."""
import ctypes, errno, json, os, re, socket, subprocess, sys

asked = json.load(open(sys.argv[1]))


def attempt(work):
    """What the kernel says: 'done', or the name of the error."""
    try:
        work()
        return "done"
    except socket.gaierror:
        return "unresolved"
    except socket.timeout:
        return "timeout"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def connect(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        client.connect((host, port))


def bind(host, port, *options):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server:
        for option in options:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind((host, port))
        server.listen()


def write(place):
    name = os.path.join(place, "probe-of-a-write")
    with open(name, "w") as file:
        file.write("x")
    os.unlink(name)


def listening(kind):
    rows = [line.split() for line in open("/proc/net/" + kind)][1:]
    return sorted(row[1] for row in rows if row[3] == "0A" or kind.startswith("udp"))


def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def writable_directories():
    found = []
    for place, directories, _ in os.walk("/"):
        if place in ("/proc", "/sys", "/workspace", "/state", "/tmp", "/home/agent", "/run/slipway"):
            directories[:] = []
        if os.access(place, os.W_OK):
            found.append(place)
    return sorted(found)


def commands():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield open(f"/proc/{pid}/cmdline").read().replace("\0", " ").strip()
        except OSError:
            pass


def spawn_all():
    """How many processes there can be besides those of the agent."""
    children = []
    try:
        while len(children) < 4000:
            child = os.fork()
            if child == 0:
                os.close(release)
                os.read(blocked, 1)
                os._exit(0)
            children.append(child)
    except OSError as error:
        ended = errno.errorcode[error.errno]
    else:
        ended = "no limit"
    os.close(release)
    for child in children:
        os.waitpid(child, 0)
    return {"count": len(children), "ended": ended}


fields = dict(re.findall(r"^(\w+):\s*(.*)$", open("/proc/self/status").read(), re.M))
blocked, release = os.pipe()
CLONE_NEWUSER, SYS_UNSHARE, SYS_MOUNT, SYS_PTRACE = 0x10000000, 272, 165, 101

print(json.dumps({
    "interfaces": os.listdir("/sys/class/net"),
    "routes": [line.split()[0] for line in open("/proc/net/route")][1:],
    "routes6": sorted({line.split()[-1] for line in open("/proc/net/ipv6_route")}) if os.path.exists("/proc/net/ipv6_route") else [],
    "resolved": [attempt(lambda: socket.getaddrinfo(name, 443)) for name in asked["names"]],
    "connected": {f"{host} {port}": attempt(lambda: connect(host, port)) for host, port in asked["addresses"]},
    "bound": [
        attempt(lambda: bind(host, port, *options))
        for port in (3128, 3129)
        for host in ("127.0.0.1", "0.0.0.0")
        for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,))
    ],
    "listening": {kind: listening(kind) for kind in ("tcp", "tcp6", "udp", "udp6") if os.path.exists("/proc/net/" + kind)},
    "writes": {place: attempt(lambda: write(place)) for place in asked["places"]},
    "writable": writable_directories(),
    "overwrites": {file: attempt(lambda: open(file, "r+").close()) for file in asked["files"]},
    "exist": [name for name in asked["absent"] if os.path.lexists(name)],
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "status": {name: fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")},
    "privileges": {
        "become root": attempt(lambda: os.setuid(0)),
        "raw socket": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
        "packet socket": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)),
        "device": attempt(lambda: os.mknod("/tmp/device", 0o60600, os.makedev(8, 0))),
        "chroot": attempt(lambda: os.chroot("/tmp")),
        "name": attempt(lambda: socket.sethostname("other")),
        "namespace": attempt(lambda: call(SYS_UNSHARE, CLONE_NEWUSER)) if os.uname().machine == "x86_64" else "EPERM",
        "mount": attempt(lambda: call(SYS_MOUNT, b"none", b"/tmp", b"tmpfs", 0, 0)) if os.uname().machine == "x86_64" else "EPERM",
    },
    "sudo": subprocess.run(["su", "-c", "id -u"], capture_output=True, stdin=subprocess.DEVNULL).returncode,
    "commands": sorted(commands()),
    "environment": dict(os.environ),
    "spawned": spawn_all(),
}))
