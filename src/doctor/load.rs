//! Work that wants one resource of a host as hard as it can: what probes measure, and what hogs
//! take from them.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use gleaner_hooks::FileSystem;
use rustix::fs::{Advice, fadvise};
use serde::Serialize;

/// Which resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Load {
    /// Arithmetic in registers.
    Cpu,
    /// A pass over memory well beyond the caches, read and written.
    Memory,
    /// Small writes that are synced, and reads past the page cache.
    Disk,
}

impl Load {
    pub(super) const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Disk];

    /// What one of its workers has written to a disk when it is set up and at work, in bytes.
    pub(super) const fn written_at_work(self) -> u64 {
        match self {
            Self::Cpu | Self::Memory => 0,
            // Both files, and some turns.
            Self::Disk => (2 * BLOCKS + TURNS_AT_WORK) * BLOCK as u64,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Disk => "disk",
        })
    }
}

/// Steps of one turn of arithmetic.
const STEPS: u32 = 1 << 18;
/// Words of one turn through memory.
const WORDS: usize = (1 << 20) / size_of::<u64>();
/// Bytes of one turn on a disk, written and then read.
const BLOCK: usize = 64 << 10;
/// Blocks of the file that is written, and of the one that is read.
const BLOCKS: u64 = 512;
/// Turns after which a worker is no longer at its set-up.
const TURNS_AT_WORK: u64 = 16;
/// From one block that is read to the next; shares no divisor with their number.
const STRIDE: u64 = 201;
/// Memory of all threads of one load together, in bytes: at least …
const MEMORY_BYTES_MIN: u64 = 128 << 20;
/// … and at most; between them, so many times the largest cache.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
const CACHES: u64 = 4;

/// One thread's work.
pub(super) enum Worker {
    Cpu(u64),
    Memory { words: Vec<u64>, next: usize },
    Disk { written: File, read: File, block: Vec<u8>, next: u64 },
}

impl Worker {
    /// Sets up one of `threads` that share a load; `folder` is its own.
    pub(super) fn new(load: Load, threads: u32, folder: &Path) -> io::Result<Self> {
        Ok(match load {
            Load::Cpu => Self::Cpu(1),
            Load::Memory => {
                let bytes = memory_bytes() / u64::from(threads.max(1));
                let turns = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(WORDS * 8).max(1);
                // Written, so that the kernel has given all of it.
                Self::Memory { words: vec![1; turns * WORDS], next: 0 }
            }
            Load::Disk => {
                fs::create_dir_all(folder)?;
                let open = |name: &str| {
                    let mut open = OpenOptions::new();
                    open.read(true).write(true).create(true).truncate(true).open(folder.join(name))
                };
                let (written, read, block) = (open("written")?, open("read")?, vec![7; BLOCK]);
                for file in [&written, &read] {
                    (0..BLOCKS).try_for_each(|at| file.write_all_at(&block, at * BLOCK as u64))?;
                    file.sync_all()?;
                }
                fadvise(&read, 0, None, Advice::Random)?;
                Self::Disk { written, read, block, next: 0 }
            }
        })
    }

    /// Does a bit of it: some hundred microseconds, or what a disk takes.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        match self {
            Self::Cpu(state) => {
                for _ in 0..STEPS {
                    *state ^= *state << 13;
                    *state ^= *state >> 7;
                    *state = black_box(*state ^ (*state << 17));
                }
                Ok(())
            }
            Self::Memory { words, next } => {
                for word in &mut words[*next..*next + WORDS] {
                    *word = word.wrapping_mul(3).wrapping_add(1);
                }
                black_box(&mut *words);
                *next = if *next + WORDS < words.len() { *next + WORDS } else { 0 };
                Ok(())
            }
            Self::Disk { written, read, block, next } => {
                let bytes = BLOCK as u64;
                written.write_all_at(block, *next % BLOCKS * bytes)?;
                written.sync_data()?;
                let at = *next * STRIDE % BLOCKS * bytes;
                // Clean pages go at once: what is read comes from the disk.
                fadvise(&*read, at, std::num::NonZero::new(bytes), Advice::DontNeed)?;
                read.read_exact_at(block, at)?;
                *next += 1;
                Ok(())
            }
        }
    }
}

/// Well beyond the caches.
fn memory_bytes() -> u64 {
    let caches = (0..8).filter_map(|index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = fs::read_to_string(path).ok()?;
        let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    });
    let largest = caches.max().unwrap_or(0);
    (largest * CACHES).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
}

/// A folder for files that a disk holds, and not memory.
pub(crate) fn folder_on_disk() -> io::Result<tempfile::TempDir> {
    let temporary = std::env::temp_dir();
    let places = [temporary.as_path(), Path::new("/var/tmp")];
    let place = places
        .into_iter()
        .find(|place| FileSystem::of(place) != FileSystem::Memory)
        .ok_or_else(|| {
            let name = temporary.display();
            let text =
                format!("{name} and /var/tmp are in memory: let TMPDIR name a folder on a disk");
            io::Error::new(ErrorKind::Unsupported, text)
        })?;
    tempfile::Builder::new().prefix("gleaner-doctor-").tempdir_in(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_goes_on_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        for load in Load::ALL {
            let mut worker = Worker::new(load, 64, folder.path()).expect("room");
            for _ in 0..3 {
                worker.turn().expect("works");
            }
            if let Worker::Memory { words, next } = &mut worker {
                *next = words.len() - WORDS;
                worker.turn().expect("works");
                assert!(matches!(worker, Worker::Memory { next: 0, .. }), "from the beginning");
            }
        }
    }

    #[test]
    fn a_pass_over_memory_is_beyond_the_caches() {
        assert!((MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&memory_bytes()));
    }
}
