//! Collecting what a replica produced.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use gleaner_protocol::limits::{BLOB_BYTES_MAX, INLINE_BYTES_MAX};
use gleaner_protocol::{Content, Digest};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{getegid, geteuid};

use super::folder::remove_all;
use crate::harvest::Product;

/// Where a replica's large output file waits to be brought to the broker.
pub(crate) fn spool_path(spool: &Path, token: u64, name: &str) -> PathBuf {
    spool.join(format!("{token:016x}-{name}"))
}

/// Name of a compiled module in the spool folder; no output has it.
pub(crate) const COMPILED_NAME: &str = ".compiled";

/// Removes all large output files of a replica, finished or not.
pub(crate) fn discard_spooled(spool: &Path, token: u64) {
    let prefix = format!("{token:016x}-");
    let Ok(files) = fs::read_dir(spool) else { return };
    for file in files.flatten() {
        if file.file_name().to_string_lossy().starts_with(&prefix) {
            // What cannot be removed now is removed at the agent's next start.
            let _ = fs::remove_file(file.path());
        }
    }
}

/// Keeps outputs: small ones in the reply, large ones in the spool folder.
#[derive(Debug)]
pub(super) struct Collector {
    spool: PathBuf,
}

impl Collector {
    pub(super) fn new(spool: PathBuf) -> Self {
        Self { spool }
    }

    /// Folder of large outputs.
    #[cfg(feature = "wasm")]
    pub(super) fn spool(&self) -> &Path {
        &self.spool
    }

    /// Forgets the large ones of a replica.
    pub(super) fn discard(&self, token: u64) {
        discard_spooled(&self.spool, token);
    }

    /// Keeps what is in memory.
    pub(super) fn keep_bytes(
        &self,
        token: u64,
        name: &str,
        bytes: Vec<u8>,
    ) -> Result<Product, String> {
        let name = name.to_owned();
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Product { name, content: Content::Inline(bytes) });
        }
        let path = spool_path(&self.spool, token, &name);
        fs::write(&path, &bytes).map_err(|error| format!("cannot keep {name}: {error}"))?;
        let content = Content::Stored { digest: Digest::of(&bytes), bytes: bytes.len() as u64 };
        Ok(Product { name, content })
    }

    /// Takes a large output out of the folder of a worker, which kept it there as in a spool folder. Its
    /// content is checked where it is brought to. It is looked at when the worker cannot put anything
    /// else in its place any more.
    pub(super) fn take(&self, folder: &Path, token: u64, name: &str) -> Result<(), String> {
        let kept = spool_path(&self.spool, token, name);
        let trouble = |error: io::Error| format!("output {name:?} cannot be kept: {error}");
        fs::rename(spool_path(folder, token, name), &kept).map_err(trouble)?;
        own_file(&kept).map_err(|reason| {
            let _ = remove_all(&kept);
            format!("output {name:?} {reason}")
        })
    }

    /// A file for what comes bit by bit.
    pub(super) fn spool_file(&self, token: u64, name: &str) -> io::Result<File> {
        File::options().read(true).write(true).create(true).truncate(true).open(spool_path(
            &self.spool,
            token,
            name,
        ))
    }

    /// Keeps a file that a task left at `path`.
    pub(super) fn keep_file(&self, token: u64, path: &Path, name: &str) -> Result<Product, String> {
        let mut file = open_plain(path).map_err(|reason| format!("output {name:?} {reason}"))?;
        let bytes = file.metadata().map_err(|error| format!("output {name:?}: {error}"))?.size();
        if bytes > BLOB_BYTES_MAX {
            let reason = "is larger than an output may be";
            return Err(format!("output {name:?} {reason}: {bytes} bytes of {BLOB_BYTES_MAX}"));
        }
        let read = |error: io::Error| format!("output {name:?} cannot be read: {error}");
        if bytes <= INLINE_BYTES_MAX as u64 {
            let mut content = Vec::with_capacity(INLINE_BYTES_MAX);
            file.take(INLINE_BYTES_MAX as u64).read_to_end(&mut content).map_err(read)?;
            return Ok(Product { name: name.into(), content: Content::Inline(content) });
        }
        let digest = Digest::of_reader(&mut file).map_err(read)?;
        // Whatever rights the task left it: the agent is to read it, and nobody to run it.
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(read)?;
        fs::rename(path, spool_path(&self.spool, token, name)).map_err(read)?;
        Ok(Product { name: name.into(), content: Content::Stored { digest, bytes } })
    }
}

/// Makes a regular file one of this process's user, whom alone it is for.
fn own_file(path: &Path) -> Result<(), String> {
    let file = open_plain(path)?;
    let trouble = |error: io::Error| format!("cannot be kept: {error}");
    let bytes = file.metadata().map_err(trouble)?.size();
    if bytes > BLOB_BYTES_MAX {
        return Err(format!("is larger than an output may be: {bytes} bytes of {BLOB_BYTES_MAX}"));
    }
    fchown(&file, Some(geteuid().as_raw()), Some(getegid().as_raw())).map_err(trouble)?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(trouble)
}

/// Opens what is a regular file itself: neither a link to one nor anything that could block.
fn open_plain(path: &Path) -> Result<File, String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Err("was not written".into()),
        Err(rustix::io::Errno::LOOP) => return Err("is a symbolic link".into()),
        Err(error) => return Err(format!("cannot be opened: {error}")),
    };
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err("is no regular file".into()),
        Err(error) => Err(format!("cannot be looked at: {error}")),
    }
}

/// Copies `source` to `target` and says what went through.
pub(super) fn copy_hashed(source: File, target: &Path) -> io::Result<Digest> {
    struct Tee(File, File);
    impl Read for Tee {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(buffer)?;
            self.1.write_all(&buffer[..read])?;
            Ok(read)
        }
    }
    Digest::of_reader(Tee(source, File::create_new(target)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(make: impl FnOnce(&Path)) -> (tempfile::TempDir, Result<Product, String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let (work, spool) = (folder.path().join("work"), folder.path().join("spool"));
        fs::create_dir(&work).expect("made");
        fs::create_dir(&spool).expect("made");
        make(&work);
        let product = Collector::new(spool).keep_file(7, &work.join("out"), "out");
        (folder, product)
    }

    #[test]
    fn small_files_travel_and_large_ones_wait_in_the_spool() {
        let (_folder, small) = collect(|work| fs::write(work.join("out"), "x").expect("written"));
        assert_eq!(small.expect("plain").content, Content::Inline(b"x".to_vec()));
        let large = vec![5; INLINE_BYTES_MAX + 1];
        let (folder, product) =
            collect(|work| fs::write(work.join("out"), &large).expect("written"));
        let Content::Stored { digest, bytes } = product.expect("plain").content else {
            panic!("large")
        };
        assert_eq!((digest, bytes), (Digest::of(&large), large.len() as u64));
        let kept = fs::read(spool_path(&folder.path().join("spool"), 7, "out")).expect("kept");
        assert_eq!(kept, large);
    }

    #[test]
    fn what_is_no_file_of_the_folder_is_refused() {
        let (_f, missing) = collect(|_| {});
        assert!(missing.expect_err("missing").contains("was not written"));
        let (_f, link) = collect(|work| {
            std::os::unix::fs::symlink("/etc/passwd", work.join("out")).expect("made");
        });
        assert!(link.expect_err("a link").contains("symbolic link"));
        let (_f, folder) = collect(|work| fs::create_dir(work.join("out")).expect("made"));
        assert!(folder.expect_err("a folder").contains("no regular file"));
        let (_f, pipe) = collect(|work| {
            let path = work.join("out");
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(CWD, &path, fifo, Mode::RWXU, 0).expect("made");
        });
        assert!(pipe.expect_err("a pipe").contains("no regular file"));
    }

    #[test]
    fn a_file_over_the_limit_is_refused_unread() {
        let (_f, huge) = collect(|work| {
            let file = File::create(work.join("out")).expect("made");
            file.set_len(BLOB_BYTES_MAX + 1).expect("sparse");
        });
        assert!(huge.expect_err("huge").contains("larger than"));
    }
}
