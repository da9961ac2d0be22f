"""OpenPBS hook for execjob_begin and execjob_end: runs on every host of a job, as root.

It reads the job's share of this host from `exec_vnode` and calls Gleaner's own hook. Whatever goes
wrong, the event is accepted: a hook that rejects one, or ends with an exception, ends the job.
"""

import sys

import pbs

HOOKS = "/etc/gleaner/hooks/openpbs"


def share_of(exec_vnode, hosts):
    """Cores, memory in MiB and GPUs of `(n1:ncpus=4:mem=1048576kb)+(n2[0]:ncpus=2)` on the vnodes
    of one host, which `hosts` names. Cores are none where nothing sensible is said."""
    names = set(_short(host) for host in hosts if host)
    cores, memory_kib, gpus, found = 0, 0, 0, False
    for chunk in exec_vnode.replace("(", "").replace(")", "").split("+"):
        words = chunk.split(":")
        if _short(words[0].split("[")[0]) not in names:
            continue
        found = True
        for word in words[1:]:
            resource, _, value = word.partition("=")
            if resource == "ncpus":
                cores += int(value)
            elif resource == "ngpus":
                gpus += int(value)
            elif resource == "mem":
                memory_kib += _kib(value)
    if not found or cores < 1:
        return None, None, None
    return cores, -(-memory_kib // 1024) or None, gpus or None


def is_alone(job):
    """Whether a job has its hosts for itself (`place=excl`, `exclhost`), whatever it asked for there."""
    words = ("%s" % job.Resource_List["place"]).split(":")
    return any(word in ("excl", "exclhost") for word in words)


def has_failed(job):
    """Whether a job failed by itself, where the event says how it ended: one that was deleted, put back
    into the queue or ended for its limits (TERM and then KILL, or a number below 0) is neither."""
    status = getattr(job, "Exit_status", None)
    if status is None:
        return None
    status = int("%s" % status)
    if status < 0 or status in (256 + 9, 256 + 15):
        return None
    return status != 0


def _short(host):
    return host.strip().split(".")[0].lower()


def _kib(text):
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = text[len(digits) :].lower()
    # More than there may be is better than less: units are rounded up to whole KiB.
    bytes_per_unit = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
    return -(-int(digits) * bytes_per_unit[unit] // 1024)


def handle(event):
    if HOOKS not in sys.path:
        sys.path.append(HOOKS)
    # Python would keep a file beside it that nobody takes away.
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        import gleaner_hook
    finally:
        sys.dont_write_bytecode = kept

    job = event.job
    name = gleaner_hook.booking("pbs", job.id)
    if event.type != pbs.EXECJOB_BEGIN:
        try:
            failed = has_failed(job)
        except Exception:
            failed = None
        gleaner_hook.postflight(name, failed=failed)
        return
    try:
        cores, memory_mib, gpus = share_of("%s" % job.exec_vnode, [pbs.get_local_nodename()])
        if is_alone(job):
            cores = None
    except Exception:
        # The whole host.
        cores, memory_mib, gpus = None, None, None
    gleaner_hook.preflight(name, cores=cores, memory_mib=memory_mib, gpus=gpus)


def main():
    event = None
    try:
        event = pbs.event()
        handle(event)
    except SystemExit:
        raise
    except Exception:
        pass
    try:
        event.accept()
    except SystemExit:
        # Accepting ends the hook this way.
        raise
    except Exception:
        pass


main()
