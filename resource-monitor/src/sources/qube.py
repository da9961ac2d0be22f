# What Qube's supervisor has running on its workers, as JSON: the monitor runs this to poll it.
import json
import os
import sys

folder = os.environ.get("QBDIR") or "/usr/local/pfx/qube"
sys.path.append(os.path.join(folder, "api", "python"))
import qb

workers = [
    {
        "name": worker["name"],
        "state": worker["state"],
        "instances": [[int(one["pid"]), int(one["id"])] for one in worker["subjobs"] or []],
    }
    for worker in qb.hostinfo(subjobs=True)
]
json.dump(workers, sys.stdout)
