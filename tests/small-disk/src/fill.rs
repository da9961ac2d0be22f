//! Files that take the space of others.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// At once.
const PART_BYTES: u64 = 1 << 20;

/// Writes to this file until nothing more fits on its disk.
///
/// # Panics
/// If somebody else makes space meanwhile.
pub fn fill(path: &Path) {
    fill_but(path, 0);
    assert!(fs::write(path.with_extension("more"), "x").is_err(), "the disk is full");
}

/// Writes to this file until so many bytes of its disk are left.
///
/// # Panics
/// If it cannot be made.
pub fn fill_but(path: &Path, leave_bytes: u64) {
    let mut file = File::options().create(true).append(true).open(path).expect("made");
    loop {
        let disk = rustix::fs::statvfs(path).expect("it is there");
        let free_bytes = disk.f_bavail * disk.f_frsize;
        let part_bytes = free_bytes.saturating_sub(leave_bytes).min(PART_BYTES);
        if part_bytes == 0 || file.write_all(&vec![1; part_bytes as usize]).is_err() {
            return;
        }
    }
}
