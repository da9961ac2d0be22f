//! How files become chunks.
//!
//! # Invariants
//! - What is in memory of a file is one chunk of it, and the coarse volume of a step.
//! - A chunk has the digest of the bytes that are sent. Where a file changes meanwhile nothing is named.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gleaner_kernels::volume::{BrickFile, Cutter};
use gleaner_protocol::limits::{DATASET_CHUNKS_MAX, DATASET_STEPS_MAX};
use gleaner_protocol::{BrickedVolume, DatasetKind, check_file_name};

use crate::failure::Failure;

/// A chunk's content, and the smallest and the largest value in it.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) bytes: Vec<u8>,
    pub(super) bounds: Option<[f32; 2]>,
}

/// Files that are to become chunks, one after the other.
#[derive(Debug)]
pub(super) enum Partition {
    Bricks(Box<Bricks>),
    Ranges(Ranges),
}

/// A volume, or several of one size, in files.
#[derive(Debug)]
pub(super) struct Bricks {
    paths: Vec<PathBuf>,
    seen: Vec<Seen>,
    first: Option<Cutter>,
    volume: BrickedVolume,
    brick_bytes: usize,
}

/// A file in parts.
#[derive(Debug)]
pub(super) struct Ranges {
    path: PathBuf,
    file: File,
    seen: Seen,
    name: String,
    part_bytes: u64,
}

/// A file as it was before it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Seen {
    fn of(about: &Metadata) -> Self {
        let changed = (about.mtime(), about.mtime_nsec());
        Self { inode: about.ino(), bytes: about.len(), changed }
    }

    fn look(path: &Path) -> anyhow::Result<Self> {
        let about = path.metadata();
        let about = about.map_err(|error| cannot_read(path, &error))?;
        Ok(Self::of(&about))
    }

    fn check(self, path: &Path) -> anyhow::Result<()> {
        if Self::look(path)? == self {
            return Ok(());
        }
        bail!(
            "{} changed while it was being uploaded: nothing was named; add it once more",
            path.display()
        )
    }
}

fn cannot_read(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Usage(format!("cannot read {}: {error}", path.display()))
}

fn spare() -> std::io::Result<File> {
    tempfile::tempfile()
}

impl Bricks {
    /// Looks at volumes, each a step or several.
    pub(super) fn open(paths: Vec<PathBuf>, brick_bytes: usize) -> anyhow::Result<Self> {
        let (mut seen, mut first, mut steps) = (Vec::new(), None, 0);
        for path in &paths {
            seen.push(Seen::look(path)?);
            let cutter = open(path, brick_bytes)?;
            steps += cutter.steps();
            match &first {
                None => first = Some(cutter),
                Some(known) => check_alike(known, &cutter, path, &paths[0])?,
            }
        }
        let first = first.context("no files")?;
        let [size, bricks] = [first.size(), first.counts()].map(|of| of.map(|side| side as u32));
        let most = DATASET_CHUNKS_MAX / (first.bricks() + 1);
        if steps > most.min(DATASET_STEPS_MAX as usize) {
            return Err(Failure::Usage(format!(
                "{steps} steps of {} bricks are more chunks than the {DATASET_CHUNKS_MAX} of a dataset: \
                 make larger ones (--chunk-mib), or several datasets",
                first.bricks()
            ))
            .into());
        }
        let volume = BrickedVolume { size, spacing: first.spacing(), bricks, steps: steps as u32 };
        Ok(Self { paths, seen, first: Some(first), volume, brick_bytes })
    }

    fn each(mut self, give: &mut dyn FnMut(Made) -> bool) -> anyhow::Result<()> {
        let (mut coarse, mut step) = (Vec::new(), 0);
        for (path, seen) in self.paths.iter().zip(&self.seen) {
            let mut cutter = match self.first.take() {
                Some(first) => first,
                None => open(path, self.brick_bytes)?,
            };
            for of_file in 0..cutter.steps() {
                let named = (self.volume.steps > 1).then_some(step);
                for index in 0..cutter.bricks() {
                    let brick = cutter.brick(of_file, index, named);
                    if !give(made(brick.map_err(|error| cannot_read(path, &error))?)) {
                        return Ok(());
                    }
                }
                let volume = cutter.coarse().map_err(|error| cannot_read(path, &error))?;
                coarse.push(made(volume));
                step += 1;
            }
            seen.check(path)?;
        }
        coarse.into_iter().all(give);
        Ok(())
    }
}

fn open(path: &Path, brick_bytes: usize) -> Result<Cutter, Failure> {
    Cutter::open(path, brick_bytes, spare).map_err(|error| cannot_read(path, &error))
}

fn made(BrickFile { bytes, bounds }: BrickFile) -> Made {
    Made { bytes, bounds: Some(bounds) }
}

/// Steps have one size, one spacing and one type of voxels.
fn check_alike(one: &Cutter, other: &Cutter, path: &Path, first: &Path) -> Result<(), Failure> {
    let about = |of: &Cutter| (of.size(), of.spacing().map(f64::to_bits), of.counts());
    if about(one) == about(other) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{} is no step of the same series as {}: it has {:?} voxels {:?} apart, and that one {:?} \
         voxels {:?} apart, of one type; add them as two datasets",
        path.display(),
        first.display(),
        other.size(),
        other.spacing(),
        one.size(),
        one.spacing()
    )))
}

impl Ranges {
    /// Looks at a file.
    pub(super) fn open(path: PathBuf, part_bytes: u64) -> anyhow::Result<Self> {
        let file = File::open(&path).map_err(|error| cannot_read(&path, &error))?;
        let about = file.metadata().map_err(|error| cannot_read(&path, &error))?;
        let shown = path.display();
        if !about.is_file() {
            return Err(Failure::Usage(format!("{shown} is not a plain file")).into());
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        check_file_name(&name).map_err(|error| Failure::Usage(format!("{shown}: {error}")))?;
        let count = about.len().div_ceil(part_bytes);
        if count > DATASET_CHUNKS_MAX as u64 {
            return Err(Failure::Usage(format!(
                "{shown} would have {count} chunks, at most {DATASET_CHUNKS_MAX} are kept: make larger \
                 ones (--chunk-mib)"
            ))
            .into());
        }
        Ok(Self { seen: Seen::of(&about), path, file, name, part_bytes })
    }

    fn each(self, give: &mut dyn FnMut(Made) -> bool) -> anyhow::Result<()> {
        let Self { path, file, seen, part_bytes, .. } = self;
        let mut from = 0;
        loop {
            let length = part_bytes.min(seen.bytes - from);
            let mut bytes = vec![0; usize::try_from(length).context("a chunk is too long")?];
            if file.read_exact_at(&mut bytes, from).is_err() {
                // It has become shorter, or cannot be read any more.
                seen.check(&path)?;
                bail!("{} cannot be read", path.display());
            }
            from += length;
            if !give(Made { bytes, bounds: None }) || from == seen.bytes {
                break;
            }
        }
        seen.check(&path)
    }
}

impl Partition {
    /// What its chunks are.
    pub(super) fn kind(&self) -> DatasetKind {
        match self {
            Self::Bricks(bricks) => DatasetKind::Bricks(bricks.volume.clone()),
            Self::Ranges(ranges) => DatasetKind::Ranges { name: ranges.name.clone() },
        }
    }

    /// How many chunks there will be.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Bricks(bricks) => {
                (bricks.volume.bricks_of_step() + 1) * u64::from(bricks.volume.steps)
            }
            Self::Ranges(Ranges { seen, part_bytes, .. }) => {
                seen.bytes.div_ceil(*part_bytes).max(1)
            }
        }
    }

    /// Makes all chunks in order, until one is not taken. The files are looked at once more at their end.
    pub(super) fn each(self, give: &mut dyn FnMut(Made) -> bool) -> anyhow::Result<()> {
        match self {
            Self::Bricks(bricks) => bricks.each(give),
            Self::Ranges(ranges) => ranges.each(give),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_split_and_one_that_changes_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data.bin");
        fs::write(&path, (0..250_u8).collect::<Vec<_>>()).expect("written");
        let open = || Partition::Ranges(Ranges::open(path.clone(), 100).expect("a file"));
        assert_eq!(open().count(), 3);
        let mut parts = Vec::new();
        let all = open().each(&mut |made| {
            parts.push(made.bytes);
            true
        });
        all.expect("as it was");
        assert_eq!(parts.concat(), (0..250_u8).collect::<Vec<_>>());
        assert_eq!(parts.len(), 3);
        let changed = open().each(&mut |_| {
            fs::write(&path, [7; 120]).expect("written");
            true
        });
        let told = changed.expect_err("it changed").to_string();
        assert!(told.contains("changed while it was being uploaded"), "{told}");
        fs::write(&path, "").expect("written");
        let mut lengths = Vec::new();
        let all = open().each(&mut |made| {
            lengths.push(made.bytes.len());
            true
        });
        all.expect("as it was");
        assert_eq!((open().count(), lengths), (1, vec![0]));
    }

    #[test]
    fn steps_of_another_size_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = |name: &str, x: usize| {
            let header =
                format!("NRRD0004\ntype: uint8\ndimension: 3\nsizes: {x} 9 9\nencoding: raw\n\n");
            let path = folder.path().join(name);
            fs::write(&path, [header.into_bytes(), vec![1; x * 81]].concat()).expect("written");
            path
        };
        let (a, b, c) = (volume("a.nrrd", 20), volume("b.nrrd", 20), volume("c.nrrd", 21));
        let bricks = Bricks::open(vec![a.clone(), b], 2_000).expect("alike");
        let partition = Partition::Bricks(Box::new(bricks));
        // Three bricks, and a coarse volume, of each step.
        assert_eq!(partition.count(), 8);
        let mut made = 0;
        let all = partition.each(&mut |_| {
            made += 1;
            true
        });
        all.expect("as they were");
        assert_eq!(made, 8);
        let told = Bricks::open(vec![a, c], 2_000).expect_err("another size").to_string();
        assert!(told.contains("c.nrrd is no step") && told.contains("[21, 9, 9]"), "{told}");
    }
}
