"""Tells Gleaner of the tasks that an Afanasy render runs.

`attach` has every service tell it, whatever its class overrides: the base class's constructor puts
our steps before the methods that a render calls. Servers and GUIs make services too, to show a
task; those have no folder to store in, and nothing is told of them.

- `getEnvironment` is the last that a render calls before it launches the command: preflight.
- `parse` names the render's process: the booking ends with that at the latest.
- `checkExitStatus` comes when it has ended, and says whether it has failed: postflight.

Afanasy's capacity is no number of cores, so a task books the whole host. Nothing of ours may fail
or delay a task: everything is caught, and each call is bounded.
"""

import sys

# On the render's own disk: CGRU may be on the network.
HOOKS = "/etc/gleaner/hooks/afanasy"


def _hooks():
    """The module that calls the hook; none where Gleaner is not installed on this host."""
    try:
        if HOOKS not in sys.path:
            sys.path.append(HOOKS)
        # Python would keep a file beside it that nobody takes away.
        kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            import gleaner_hook
        finally:
            sys.dont_write_bytecode = kept

        return gleaner_hook
    except Exception:
        return None


def attach(base):
    """Has every service of class `base` or below tell Gleaner. Never raises; once is enough."""
    try:
        if getattr(base, "_gleaner_attached", False):
            return
        own = base.__init__

        def __init__(self, *arguments, **named):
            own(self, *arguments, **named)
            try:
                _watch(self)
            except Exception:
                pass

        base.__init__ = __init__
        base._gleaner_attached = True
    except Exception:
        pass


def _watch(service):
    info = service.taskInfo
    if not info.get("store_dir") or getattr(service, "_gleaner", None) is not None:
        return
    hooks = _hooks()
    if hooks is None:
        return
    service._gleaner = _Task(hooks, info)
    _before(service, "getEnvironment", service._gleaner.begin)
    _before(service, "parse", service._gleaner.parsed)
    _after(service, "checkExitStatus", service._gleaner.end)


def _before(service, method, step):
    """Takes a step before a method of this one service. What the method does stays its own."""
    own = getattr(service, method, None)
    if own is None:
        return

    def call(*arguments, **named):
        try:
            step(*arguments, **named)
        except Exception:
            pass
        return own(*arguments, **named)

    setattr(service, method, call)


def _after(service, method, step):
    """Takes a step after a method of this one service, with what that returned; whatever became of it."""
    own = getattr(service, method, None)
    if own is None:
        return

    def call(*arguments, **named):
        verdict = None
        try:
            verdict = own(*arguments, **named)
            return verdict
        finally:
            try:
                step(verdict)
            except Exception:
                pass

    setattr(service, method, call)


class _Task(object):
    """One run of one task on this host."""

    def __init__(self, hooks, info):
        self.hooks = hooks
        self.info = info
        parts = [info.get("job_id"), info.get("block_id"), info.get("task_id")]
        self.name = hooks.booking("afanasy", *parts)
        self.runs = False
        self.process = None

    def begin(self, *_):
        # A task whose files are there already has no command left, and is not run.
        if not self.runs and self.info.get("command"):
            self.runs = True
            self.hooks.preflight(self.name)

    def parsed(self, data=None, mode=None, pid=None, *_):
        if isinstance(data, dict):
            pid = data.get("pid")
        if self.runs and self.process is None and pid:
            self.process = int(pid)
            self.hooks.postflight(self.name, process=self.process)

    def end(self, is_well=None):
        # The service's own verdict: some take other exit codes than 0 for well, and 0 for a failure.
        if self.runs:
            self.runs = False
            failed = (not is_well) if isinstance(is_well, (bool, int)) else None
            self.hooks.postflight(self.name, failed=failed)
