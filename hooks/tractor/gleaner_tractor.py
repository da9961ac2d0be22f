"""Tells Gleaner of what a Tractor blade runs.

`Gleaner` goes before the blade's own status filter class, whose every method still runs, with what
it returns and raises. The blade calls a filter when a command has been launched, so cores are
freed some milliseconds after the command's start and not before it.

Nothing of ours may fail or delay a command: everything is caught, and each call is bounded.
"""

import sys

# On the blade's own disk: SiteModulesPath may be on the network.
HOOKS = "/etc/gleaner/hooks/tractor"


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


def _name(hooks, cmd):
    """A booking for a command: by its ids where the blade has them, else by its process."""
    ids = [getattr(cmd, name, None) for name in ("jid", "tid", "cid")]
    if all(part is not None for part in ids):
        return hooks.booking("tractor", *ids)
    return hooks.booking("tractor", "process", getattr(cmd, "pid", None) or id(cmd))


def _process(cmd):
    try:
        process = int(getattr(cmd, "pid", 0) or 0)
        return process if process > 1 else None
    except Exception:
        return None


def _begin(cmd):
    hooks = _hooks()
    if hooks is not None:
        try:
            hooks.preflight(_name(hooks, cmd), process=_process(cmd))
        except Exception:
            pass


# Signals by which a blade ends a command that is cancelled.
_ENDED_BY = (-9, -15)


def _failed(cmd):
    """Whether a command that has ended failed by itself; none where that is not known."""
    try:
        if getattr(cmd, "yieldchkpt", False):
            return None
        code = int(cmd.exitcode)
        # What is no exit code is the blade's own word for what became of it.
        return None if code in _ENDED_BY or code > 255 else code != 0
    except Exception:
        return None


def _end(cmd, **how):
    hooks = _hooks()
    if hooks is not None:
        try:
            hooks.postflight(_name(hooks, cmd), **how)
        except Exception:
            pass


class Gleaner(object):
    """Goes before a status filter: `class TractorSiteStatusFilter(Gleaner, TrStatusFilter)`."""

    def SubprocessStarted(self, cmd):
        _begin(cmd)
        return super(Gleaner, self).SubprocessStarted(cmd)

    def SubprocessFailedToStart(self, cmd):
        # A blade says this in the place of a start, and the next try has the same name.
        _end(cmd, if_booked=True)
        return super(Gleaner, self).SubprocessFailedToStart(cmd)

    def SubprocessEnded(self, cmd):
        _end(cmd, failed=_failed(cmd))
        return super(Gleaner, self).SubprocessEnded(cmd)
