//! A render's stand-in: threads that compute, and read a file again and again that the page cache has.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use gleaner_protocol::{Span, boottime};
use rustix::time::{ClockId, clock_gettime};

/// Bytes that are read at a time.
const BLOCK: usize = 256 << 10;
/// Steps of arithmetic for each of these: a render computes for most of its time.
const STEPS: u32 = 1 << 20;

/// See the module's page.
#[derive(Debug, Clone)]
pub(super) struct Render {
    file: Arc<File>,
    blocks: u64,
    threads: u32,
    /// Turns of each thread.
    turns: u64,
}

impl Render {
    /// One that takes about so long, and reads a file of so many bytes, which is made at `path`.
    pub(super) fn new(threads: u32, path: &Path, bytes: u64, span: Span) -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
        let (blocks, block) = (bytes.div_ceil(BLOCK as u64), vec![7; BLOCK]);
        (0..blocks).try_for_each(|_| file.write_all(&block))?;
        // What is not on the disk yet would be written beside what is measured.
        file.sync_all()?;
        let mut render = Self { file: Arc::new(file), blocks, threads, turns: 16 };
        loop {
            let begun = boottime();
            render.run()?;
            let took = boottime().since(begun);
            if took.times(4) >= span {
                let turns = render.turns as f64 * span.as_secs_f64() / took.as_secs_f64();
                return Ok(Self { turns: (turns as u64).max(1), ..render });
            }
            render.turns *= 2;
        }
    }

    /// Does all of it once; the CPU time that it took, in seconds.
    pub(super) fn run(&self) -> io::Result<f64> {
        thread::scope(|scope| {
            let start = |number| scope.spawn(move || self.run_thread(number));
            let started: Vec<_> = (0..self.threads).map(start).collect();
            // All are waited for, whatever one of them says.
            let done: Vec<_> =
                started.into_iter().map(|one| one.join().expect("no panic")).collect();
            done.into_iter().sum()
        })
    }

    fn run_thread(&self, number: u32) -> io::Result<f64> {
        // Threads read different parts.
        let first = u64::from(number) * self.blocks / u64::from(self.threads);
        let (mut block, mut state) = (vec![0; BLOCK], u64::from(number) + 1);
        for turn in 0..self.turns {
            let at = (first + turn) % self.blocks * BLOCK as u64;
            self.file.read_exact_at(&mut block, at)?;
            black_box(&block);
            for _ in 0..STEPS {
                state ^= state << 13;
                state ^= state >> 7;
                state = black_box(state ^ (state << 17));
            }
        }
        Ok(cpu_seconds(ClockId::ThreadCPUTime))
    }
}

/// CPU time of this thread, or of this process.
pub(super) fn cpu_seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_render_reads_as_much_of_the_file_whichever_thread_begins_where() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("read");
        let bytes = 3 * BLOCK as u64 + 1;
        let render = Render::new(2, &path, bytes, Span::from_millis(1)).expect("set up");
        assert!((render.blocks, render.turns >= 1) == (4, true));
        assert!(render.run().expect("it goes round") > 0.0);
        File::options().write(true).open(&path).expect("there").set_len(5).expect("cut");
        assert!(render.run().is_err(), "it is read each time");
    }
}
