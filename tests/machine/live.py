"""What the scripts share that play a scenario with a real broker and real agents, all of them processes of this machine.

GLEANER names the program, or else it is target/debug/gleaner.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/gleaner"
GLEANER = os.environ.get("GLEANER", str(BUILT))
# What tasks are: see there. Without what a site adds to Python, it is there sooner.
PYTHON = os.path.realpath(sys.executable)
TASK = str(ROOT / "tests/machine/task.py")


class Failed(Exception):
    """What to say to whoever runs this."""


def say(words):
    print(words, flush=True)


def run(*command, **options):
    """Runs a command to its end; what it says where it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def simulate(scenario, policies, sets):
    """What the simulator says of policies, by their names."""
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    words += [word for policy in policies for word in ("--policy", policy)]
    return json.loads(run(GLEANER, "simulate", scenario, "--format", "json", *words))["policies"]


def show(rows):
    """A table, the first row of which is its head."""
    widths = [max(len(str(row[at])) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        say("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths)))


class Farm:
    """A broker and its agents."""

    def __init__(self, folder, settings, *options):
        self.folder, self.running = folder, {}
        folder.mkdir()
        (folder / "broker.toml").write_text(settings)
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.broker = f"http://{address}"
        self.start("broker", ["broker", "--config", folder / "broker.toml", "--listen", address, "--data-dir",
                              folder / "broker", "--ownerless-hosts-vote", "each", *options])

    def start(self, name, arguments):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                list(map(str, [GLEANER, *arguments])), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)

    def start_agent(self, name, *options):
        """An agent that gives all its cores at any time."""
        own = self.folder / name
        self.start(name, [
            "agent", "--name", name, "--broker", self.broker, "--give-way", "false", "--origin", "desktop",
            "--run-dir", own / "run", "--work-dir", own / "work", *options])

    def tells(self, name, word):
        """Says something to an agent."""
        run(GLEANER, "agent", word, env={**os.environ, "GLEANER_RUN_DIR": str(self.folder / name / "run")})

    def hosts(self):
        """Those that are there; none as long as the broker is not."""
        try:
            return [host for host in self.gets("hosts") if host["connected"]]
        except OSError:
            return []

    def gets(self, what):
        """What the broker's API says."""
        with urllib.request.urlopen(f"{self.broker}/v1/{what}", timeout=60) as answer:
            return json.load(answer)

    def submits(self, job):
        """Its id, or none where it is declined, and why."""
        request = urllib.request.Request(
            f"{self.broker}/v1/jobs", json.dumps(job).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["job"], None
        except urllib.error.HTTPError as error:
            said = json.loads(error.read())
            if said["code"] == "declined":
                return None, said["error"]
            raise Failed(f"the broker refused a job: {said['error']}") from error

    def asks(self, *words):
        return json.loads(self.does(*words, "--format", "json"))

    def does(self, *words):
        return run(GLEANER, *words, "--broker", self.broker)

    def until(self, what, seconds, holds):
        end = time.monotonic() + seconds
        while not holds():
            self.check(what)
            if time.monotonic() > end:
                raise Failed(f"waited {seconds} s for {what}")
            time.sleep(0.1)

    def check(self, what):
        """Fails where a process has ended."""
        ended = [name for name, process in self.running.items() if process.poll() is not None]
        if ended:
            log = (self.folder / f"{ended[0]}.log").read_text(errors="replace")
            raise Failed(f"{ended[0]} has ended while waiting for {what}:\n{log[-2000:]}")

    def stop(self):
        # The broker last: agents that lose it have nothing to wait for.
        for name, process in reversed(self.running.items()):
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.running.clear()


class Urgency(threading.Thread):
    """Keeps this process, and what it has started, ahead of what else runs on this machine, where it may: nothing of it
    computes for long. All of it in real time. But where agents part cores they have control groups, of which the first
    generation takes nothing in real time: then what they start has the best nice value, in a session with the same, and
    their groups have the greatest weight."""

    def __init__(self, parts_cores):
        super().__init__(daemon=True)
        self.parts_cores, self.ended = parts_cores, threading.Event()

    def run(self):
        while os.geteuid() == 0 and not self.ended.wait(0.05 if self.parts_cores else 0.1):
            groups, own = set(), self.children(os.getpid())
            for process in [os.getpid(), *own]:
                self.lift(process, in_real_time=True)
            for process in own:
                own.extend(more := self.children(process))
                for one in more:
                    self.lift(one, in_real_time=not self.parts_cores)
                    if self.parts_cores:
                        groups |= self.groups_of(one)
                        self.write(pathlib.Path(f"/proc/{one}/autogroup"), "-20")
            for group in groups:
                for name, value in (("cpu.idle", "0"), ("cpu.shares", "262144"), ("cpu.weight", "10000")):
                    self.write(group / name, value)

    @staticmethod
    def write(file, value):
        """Where there is such a file, and it does not end so."""
        with contextlib.suppress(OSError):
            if not file.read_text().rstrip().endswith(value):
                file.write_text(value)

    def lift(self, process, in_real_time):
        # What cannot be lifted has ended.
        with contextlib.suppress(OSError):
            for thread in map(int, os.listdir(f"/proc/{process}/task")):
                now = os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK
                if in_real_time and now != os.SCHED_RR:
                    # What these start goes into control groups.
                    inherits = os.SCHED_RESET_ON_FORK if self.parts_cores else 0
                    os.sched_setscheduler(thread, os.SCHED_RR | inherits, os.sched_param(1))
                if not in_real_time and now != os.SCHED_OTHER:
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
                if not in_real_time and os.getpriority(os.PRIO_PROCESS, thread) > -20:
                    os.setpriority(os.PRIO_PROCESS, thread, -20)

    @staticmethod
    def groups_of(process):
        """Groups in which an agent's tasks have their cores."""
        found = set()
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{process}/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                if "cpu" in controllers.split(",") or not controllers:
                    place = pathlib.Path("/sys/fs/cgroup", controllers, path.lstrip("/"))
                    found |= {group for group in (place, *place.parents) if group.name.startswith("gleaner-")}
        return found

    @staticmethod
    def children(process):
        found = []
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):
                found.extend(map(int, pathlib.Path(f"/proc/{process}/task/{thread}/children").read_text().split()))
        return found


def play(name, main, options, parts_cores=False):
    """Runs `main` with a folder and takes away what it made, however it ends. `options`: `folder`, where that lies,
    and `keep`, whether it stays. `parts_cores`: whether agents have control groups."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    urgency, folder = Urgency(parts_cores), None
    try:
        if not os.access(GLEANER, os.X_OK):
            raise Failed(f"there is no program {GLEANER}: cargo build, or name one in GLEANER")
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"gleaner-{name}-", dir=options.folder))
        urgency.start()
        main(folder, options)
    except (Failed, KeyboardInterrupt) as failed:
        sys.exit(f"tests/machine/{name}: {failed or 'stopped'}")
    finally:
        urgency.ended.set()
        if folder is not None and options.keep:
            say(f"its files are in {folder}")
        elif folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def arguments(parser):
    """What all of the scripts can be told."""
    parser.add_argument("--folder", default="/var/tmp", help="where its files lie")
    parser.add_argument("--keep", action="store_true", help="leave the files, with the logs")
    return parser.parse_args()
