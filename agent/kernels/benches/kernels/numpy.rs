//! The same by numpy, where it is.

use std::process::Command;

/// Principal components by the covariance method, on one thread; prints the median CPU time of
/// five runs in milliseconds.
const SCRIPT: &str = "
import sys, time, numpy
rows, columns, count = map(int, sys.argv[1:])
data = 100 + numpy.random.default_rng(1).random((rows, columns)) - 0.5
times = []
for _ in range(5):
    began = time.process_time()
    centred = data - data.mean(axis=0)
    values, vectors = numpy.linalg.eigh(centred.T @ centred)
    components = vectors[:, ::-1][:, :count]
    scores = centred @ components
    times.append(time.process_time() - began)
print(1000 * sorted(times)[2])
";

/// What numpy takes for the components of a matrix, in CPU milliseconds; `None` where there is no
/// numpy.
pub(super) fn pca_ms(rows: usize, columns: usize, count: usize) -> Option<f64> {
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .args([rows, columns, count].map(|number| number.to_string()))
        .env("OPENBLAS_NUM_THREADS", "1")
        .env("OMP_NUM_THREADS", "1")
        .env("MKL_NUM_THREADS", "1")
        .output()
        .ok()?;
    str::from_utf8(&output.stdout).ok()?.trim().parse().ok()
}
