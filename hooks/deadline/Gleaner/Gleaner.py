"""Deadline event plugin: frees the host while its Worker has a job.

A Worker books its host from the job that it starts until it is idle or stops, so that nothing
comes between one job and the next. Deadline knows no cores of a task: the whole host is booked,
or as many cores as the plugin's configuration says.

Nothing here may fail or delay a job: everything is caught, and each call is bounded.
"""

import sys

from Deadline.Events import DeadlineEventListener

# On the Worker's own disk: the repository is on the network.
HOOKS = "/etc/gleaner/hooks/deadline"


def GetDeadlineEventListener():
    return GleanerListener()


def CleanupDeadlineEventListener(listener):
    try:
        listener.Cleanup()
    except Exception:
        pass


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


class GleanerListener(DeadlineEventListener):
    EVENTS = ("StartingJob", "Rendering", "Started", "Idle", "Stopped")

    def __init__(self):
        try:
            # Deadline from 10.3 on wants it, earlier ones have none to call.
            super(GleanerListener, self).__init__()
        except Exception:
            pass
        self.OnSlaveStartingJobCallback += self.OnSlaveStartingJob
        self.OnSlaveRenderingCallback += self.OnSlaveRendering
        self.OnSlaveStartedCallback += self.OnSlaveStarted
        self.OnSlaveIdleCallback += self.OnSlaveIdle
        self.OnSlaveStoppedCallback += self.OnSlaveStopped

    def Cleanup(self):
        for event in self.EVENTS:
            try:
                delattr(self, "OnSlave%sCallback" % event)
            except Exception:
                pass

    def OnSlaveStartingJob(self, worker, job):
        self._begin(worker)

    def OnSlaveRendering(self, worker, job):
        # In case the hook of the start was lost; for a host that is booked already it is nothing
        # new.
        self._begin(worker)

    def OnSlaveStarted(self, worker):
        # What a Worker that crashed has left behind.
        self._end(worker)

    def OnSlaveIdle(self, worker):
        self._end(worker)

    def OnSlaveStopped(self, worker):
        self._end(worker)

    def _begin(self, worker):
        hooks = _hooks()
        if hooks is not None:
            try:
                hooks.preflight(hooks.booking("deadline", worker), cores=self._cores())
            except Exception:
                pass

    def _end(self, worker):
        hooks = _hooks()
        if hooks is not None:
            try:
                name = hooks.booking("deadline", worker)
                try:
                    # A Worker starts, stops and becomes idle without a job as well, and its next
                    # one has the same name.
                    hooks.postflight(name, if_booked=True)
                except TypeError:
                    # This host's files are of an earlier release than the repository's.
                    hooks.postflight(name)
            except Exception:
                pass

    def _cores(self):
        """Cores that a job books, none for all of them."""
        try:
            cores = int(self.GetConfigEntryWithDefault("Cores", "0"))
            return cores if cores > 0 else None
        except Exception:
            return None
