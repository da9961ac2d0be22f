"""Principal components by the covariance method, on one thread.

The only argument, in JSON, names a file of double-precision numbers, row by row. For each line that
comes in, components and scores are found, and a line says how many milliseconds of CPU time that
took. At the end a line has the eigenvalues, and one those of the centred matrix' singular values,
for which nothing is squared before they are found.
"""

import json
import sys
import time

import numpy


def components(data, count):
    centred = data - data.mean(axis=0)
    values, vectors = numpy.linalg.eigh(centred.T @ centred)
    chosen = vectors[:, ::-1][:, :count]
    return values[::-1][:count], chosen, centred @ chosen


def main():
    task = json.loads(sys.argv[1])
    data = numpy.fromfile(task["file"]).reshape(task["rows"], task["columns"])
    count = task["count"]
    print("numpy", numpy.__version__, flush=True)
    values = None
    for _ in sys.stdin:
        began = time.process_time()
        values, _, _ = components(data, count)
        print(1000 * (time.process_time() - began), flush=True)
    print(*values)
    centred = data - data.mean(axis=0)
    print(*(numpy.linalg.svd(centred, compute_uv=False)[:count] ** 2))


main()
