"""A task that waits instead of computing, as long as a core of its host would compute.

    task.py MILLISECONDS [STATE]
    task.py KIND=MILLISECONDS,… [STATE]

It goes forward as fast as it could compute: by the share of a core to which its control group is held, which the
agent sets, and not at all while it is frozen. Where STATE is given it writes there how far it has come, and goes on
from where somebody came before.

What its host is stands in a folder `host` beside the agent's folder of work:

kind        what it is called, by which it takes one of several times
running     where this folder is, the host has one core, which its tasks share evenly; each is a file there
"""

import os
import sys
import time

# How often it looks how fast it goes.
TICK_S = 0.02
# A longer pause between two looks was no work: it was frozen.
FROZEN_S = 0.5


def quota():
    """Where the kernel says how much of a core this process may have: the quota, and its period where that stands in a
    file of its own."""
    for line in open("/proc/self/cgroup"):
        _, controllers, path = line.rstrip("\n").split(":", 2)
        if "cpu" in controllers.split(","):
            place = f"/sys/fs/cgroup/{controllers}{path}"
            return [os.open(f"{place}/{name}", os.O_RDONLY) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        if not controllers and os.path.exists(f"/sys/fs/cgroup{path}/cpu.max"):
            return [os.open(f"/sys/fs/cgroup{path}/cpu.max", os.O_RDONLY)]
    return []


def share(files):
    said = b" ".join(os.pread(file, 64, 0) for file in files).split()
    return 1.0 if not said or said[0] in (b"max", b"-1") else min(int(said[0]) / int(said[1]), 1.0)


def host_folder():
    """That of the host, above the folder in which this runs."""
    folder = os.getcwd()
    while folder != "/":
        if os.path.isdir(f"{folder}/host"):
            return f"{folder}/host"
        folder = os.path.dirname(folder)
    return "/nowhere"


def count(running):
    """How many tasks of a host run. What was killed could not take its name away."""
    found = 0
    for name in os.listdir(running):
        if os.path.exists(f"/proc/{name}"):
            found += 1
        else:
            try:
                os.unlink(f"{running}/{name}")
            except FileNotFoundError:
                pass
    return max(found, 1)


def takes_s(words, host):
    if "=" not in words:
        return float(words) / 1e3
    with open(f"{host}/kind") as file:
        return float(dict(of.split("=") for of in words.split(","))[file.read()]) / 1e3


def main():
    host, done_s, state = host_folder(), 0.0, None
    whole_s, running = takes_s(sys.argv[1], host), f"{host}/running"
    if len(sys.argv) > 2:
        state = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
        done_s = float(os.pread(state, 32, 0) or 0)
    shares_core = os.path.isdir(running)
    if shares_core:
        open(f"{running}/{os.getpid()}", "w").close()
    files, at = quota(), time.monotonic()
    while done_s < whole_s:
        speed = share(files) / (count(running) if shares_core else 1)
        time.sleep(min(TICK_S, max((whole_s - done_s) / max(speed, 1e-3), 1e-3)))
        now = time.monotonic()
        if now - at < FROZEN_S:
            done_s += (now - at) * speed
        at = now
        if state is not None:
            os.pwrite(state, f"{done_s:020.6f}".encode(), 0)
    if shares_core:
        os.unlink(f"{running}/{os.getpid()}")
    print("done")


main()
