//! Files that a job reads: what the command line names, looked at, hashed and uploaded.
//!
//! # Invariants
//! - A text that could mean two files is refused: no other file is ever sent than the one that was
//!   meant.
//! - Everything that can be seen of all inputs is looked at before anything is uploaded.
//! - A file passes through a buffer of fixed length, twice: once for its digest, once to the broker.
//!   One that changes in between is not sent as what it was.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use futures_util::{Stream, stream};
use gleaner_protocol::job::InputFile;
use gleaner_protocol::limits::BLOB_BYTES_MAX;
use gleaner_protocol::{Digest, DigestHasher, check_file_name};
use rustix::fs::OFlags;

use crate::client::Client;
use crate::failure::Failure;
use crate::given_file::{GivenFileError, STDIN, unreadable};

const WHAT: &str = "the input";

/// Length of the pieces that are read and sent.
const PIECE_BYTES: usize = 128 << 10;

/// An input as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedInput {
    /// Its name in the replica's folder.
    pub(crate) name: String,
    /// Where it is; `-` for standard input.
    pub(crate) path: PathBuf,
}

impl NamedInput {
    /// Reads PATH or NAME=PATH.
    ///
    /// A text is NAME=PATH where what stands before its first `=` is a plain file name and no file is
    /// called like the whole text. `./` in front makes any text a PATH, and after the `=` any text a
    /// NAME=PATH.
    ///
    /// # Errors
    /// There are both files, or a PATH gives no plain file name.
    pub(crate) fn read(text: &OsStr, is_there: impl Fn(&Path) -> bool) -> Result<Self, Failure> {
        let whole = Path::new(text);
        let (name, path) = match split(text) {
            Some((name, path)) if path.as_bytes().starts_with(b"./") || path == STDIN => {
                (name, Path::new(path))
            }
            Some((name, path)) if is_there(Path::new(path)) && !is_there(whole) => {
                (name, Path::new(path))
            }
            Some((name, path)) if is_there(Path::new(path)) => {
                let (text, path) = (whole.display(), Path::new(path).display());
                return Err(Failure::Usage(format!(
                    "--input {text} is the file {text}, or the file {path} under the name {name}: give \
                     ./{text} for the first, {name}=./PATH for the second"
                )));
            }
            Some((name, path)) if !is_there(whole) => {
                let (text, path) = (whole.display(), Path::new(path).display());
                return Err(Failure::Usage(format!(
                    "--input {text}: there is no file {text}, and none {path} for the name {name}"
                )));
            }
            _ => return Self::of_path(whole),
        };
        Ok(Self { name: name.to_owned(), path: path.to_owned() })
    }

    /// A file under its own name.
    ///
    /// # Errors
    /// That is no plain file name.
    pub(crate) fn of_path(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        if path == Path::new(STDIN) {
            let problem = "stdin has no name: give --input NAME=-";
            return Err(Failure::Usage(format!("--input -: {problem}")));
        }
        let name = path.file_name().unwrap_or_default();
        match name.to_str().filter(|name| check_file_name(name).is_ok()) {
            Some(name) => Ok(Self { name: name.to_owned(), path: path.to_owned() }),
            None => Err(Failure::Usage(format!(
                "--input {shown}: {:?} is no plain file name that a job's file can have; give \
                 NAME=./{shown}",
                name.to_string_lossy()
            ))),
        }
    }
}

/// What stands around the first `=`, where a plain file name stands before it.
fn split(text: &OsStr) -> Option<(&str, &OsStr)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let name = std::str::from_utf8(&bytes[..at]).ok()?;
    check_file_name(name).ok()?;
    Some((name, OsStr::from_bytes(&bytes[at + 1..])))
}

/// Whether a file may be there: one in a folder that may not be looked into may.
pub(crate) fn is_there(path: &Path) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), NotFound | NotADirectory | InvalidFilename),
    }
}

/// An input that was looked at and is about to be uploaded.
#[derive(Debug)]
pub(crate) struct OpenInput {
    name: String,
    path: PathBuf,
    file: File,
    bytes: u64,
    digest: Digest,
}

impl OpenInput {
    /// Opens and hashes it.
    pub(crate) fn open(input: &NamedInput) -> Result<Self, GivenFileError> {
        let NamedInput { name, path } = input.clone();
        let failed = |source| unreadable(WHAT, &path, source);
        let mut file = if path == Path::new(STDIN) {
            spooled(io::stdin().lock(), &path, BLOB_BYTES_MAX)?
        } else {
            open_plain(&path)?
        };
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes > BLOB_BYTES_MAX {
            let limit_bytes = BLOB_BYTES_MAX;
            return Err(GivenFileError::TooLong { what: WHAT, path, limit_bytes });
        }
        let digest = Digest::of_reader((&file).take(bytes)).map_err(failed)?;
        file.rewind().map_err(failed)?;
        Ok(Self { name, path, file, bytes, digest })
    }

    /// What the job says of it.
    pub(crate) fn described(&self) -> InputFile {
        InputFile { name: self.name.clone(), digest: self.digest }
    }

    /// Its length.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends it.
    pub(crate) async fn upload(self, client: &Client) -> anyhow::Result<()> {
        let Self { path, file, bytes, digest, .. } = self;
        let has_changed = Arc::new(AtomicBool::new(false));
        let content = pieces(file, bytes, digest, Arc::clone(&has_changed));
        let sent = client.put_stream(digest, bytes, content).await;
        let shown = path.display();
        if has_changed.load(Ordering::Relaxed) {
            anyhow::bail!(
                "the input {shown} changed while it was being uploaded: submit once more"
            );
        }
        sent.with_context(|| format!("cannot upload the input {shown}"))
    }
}

/// Opens a regular file, and waits for nothing.
fn open_plain(path: &Path) -> Result<File, GivenFileError> {
    let failed = |source| unreadable(WHAT, path, source);
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    let is = match () {
        () if kind.is_file() => return Ok(file),
        () if kind.is_dir() => "a folder: pack it into one file",
        () if kind.is_fifo() => "a pipe: give NAME=- and pipe it into this command",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    };
    Err(GivenFileError::Kind { what: WHAT, path: path.into(), is })
}

/// A copy, on disk, of what has no length and can be read once only.
fn spooled(mut from: impl Read, path: &Path, limit_bytes: u64) -> Result<File, GivenFileError> {
    let failed = |source| unreadable(WHAT, path, source);
    let mut file = tempfile::tempfile().map_err(failed)?;
    let (mut piece, mut bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        let read = from.read(&mut piece).map_err(failed)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        if bytes > limit_bytes {
            return Err(GivenFileError::TooLong { what: WHAT, path: path.into(), limit_bytes });
        }
        file.write_all(&piece[..read]).map_err(failed)?;
    }
    file.rewind().map_err(failed)?;
    Ok(file)
}

/// The first `bytes` of a file, in pieces. It ends with an error, and says so, where they are not
/// those of the digest: the last piece is held back until all are known.
fn pieces(
    file: impl Read + Send,
    bytes: u64,
    digest: Digest,
    has_changed: Arc<AtomicBool>,
) -> impl Stream<Item = io::Result<Vec<u8>>> + Send {
    let begun = (file, DigestHasher::default(), bytes);
    stream::unfold(Some(begun), move |state| {
        let has_changed = Arc::clone(&has_changed);
        async move {
            let (mut file, mut hasher, left) = state.filter(|(_, _, left)| *left > 0)?;
            let length = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let mut piece = vec![0; length];
            let read = file.read_exact(&mut piece).map(|()| hasher.update(&piece));
            let left = left - length as u64;
            let is_same = read.is_ok() && (left > 0 || hasher.finish() == digest);
            if !is_same {
                has_changed.store(true, Ordering::Relaxed);
                return Some((Err(io::Error::other("the file has changed")), None));
            }
            Some((Ok(piece), Some((file, hasher, left))))
        }
    })
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    /// Reads a text where these files are.
    fn read(text: &str, files: &[&str]) -> Result<(String, String), String> {
        let is_there = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        let input = NamedInput::read(OsStr::new(text), is_there);
        let input = input.map_err(|error| error.to_string())?;
        Ok((input.name, input.path.to_str().expect("plain").to_owned()))
    }

    #[test]
    fn a_text_means_the_file_that_is_there() {
        let hive = "date=2026-11-01/part.csv";
        for (text, files, name, path) in [
            ("scene.pov", &["scene.pov"][..], "scene.pov", "scene.pov"),
            ("/a/b/scene.pov", &[], "scene.pov", "/a/b/scene.pov"),
            ("other=notes", &["notes"], "other", "notes"),
            ("other=/x/notes", &["/x/notes"], "other", "/x/notes"),
            ("other=a=b", &["a=b"], "other", "a=b"),
            (hive, &[hive], "part.csv", hive),
            ("a=b", &["a=b"], "a=b", "a=b"),
            ("a=b", &["b"], "a", "b"),
            // The first way out, whatever is there, and the second one.
            ("./a=b", &["a=b", "b", "./a=b"], "a=b", "./a=b"),
            ("a=./b", &["a=b", "b", "a=./b"], "a", "./b"),
            ("a/b=c", &["c"], "b=c", "a/b=c"),
            (".x=y/z", &["y/z"], "z", ".x=y/z"),
            ("=b", &["b"], "=b", "=b"),
            ("x=-", &[], "x", "-"),
        ] {
            assert_eq!(read(text, files), Ok((name.to_owned(), path.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_text_that_means_two_files_is_refused_with_both_ways_out() {
        let hive = "date=2026-11-01/part.csv";
        let error = read(hive, &[]).expect_err("neither is there");
        assert!(error.contains("none 2026-11-01/part.csv for the name date"), "{error}");
        for (text, files) in [(hive, &[hive, "2026-11-01/part.csv"]), ("a=b", &["a=b", "b"])] {
            let error = read(text, files).expect_err(text);
            assert!(error.contains(&format!("give ./{text} for the first")), "{error}");
            assert!(error.contains("=./PATH for the second"), "{error}");
        }
    }

    #[test]
    fn a_path_without_a_name_for_the_job_says_how_to_give_one() {
        for text in [".bashrc", "..", "/", "a/.hidden", "-", ""] {
            let error = read(text, &[]).expect_err(text);
            assert!(error.contains("NAME="), "{error}");
        }
        let latin1 = OsStr::from_bytes(b"\xc5ngelholm.csv");
        NamedInput::read(latin1, |_| true).expect_err("no UTF-8");
        let named = NamedInput::read(OsStr::from_bytes(b"x=./\xc5ngelholm.csv"), |_| false);
        assert_eq!(named.expect("it has a name").name, "x");
    }

    #[test]
    fn only_regular_files_are_inputs_and_none_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("made");
        let huge = folder.path().join("huge");
        File::create(&huge).and_then(|file| file.set_len(BLOB_BYTES_MAX + 1)).expect("sparse");
        for (path, words) in [
            (Path::new("/dev/zero"), "a device"),
            (folder.path(), "a folder"),
            (&pipe, "NAME=-"),
            (&huge, "longer than 1 GiB"),
            (Path::new("/nowhere/x"), "/nowhere/x"),
        ] {
            let input = NamedInput { name: "x".into(), path: path.into() };
            let error = OpenInput::open(&input).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn stdin_without_end_is_left_at_the_limit() {
        let error = spooled(io::repeat(0), Path::new(STDIN), 1 << 20).expect_err("no end");
        assert_eq!(error.to_string(), "stdin is longer than 1 MiB, the most for the input");
        let mut copy = spooled(&b"abc"[..], Path::new(STDIN), 3).expect("it fits");
        assert_eq!(io::read_to_string(&mut copy).expect("read"), "abc");
    }

    /// What is sent of a content that is announced so.
    async fn sent(content: &[u8], bytes: u64, digest: Digest) -> (Vec<usize>, bool, bool) {
        let has_changed = Arc::new(AtomicBool::new(false));
        let pieces = pieces(content, bytes, digest, Arc::clone(&has_changed));
        let pieces: Vec<io::Result<Vec<u8>>> = pieces.collect().await;
        let broke_off = pieces.iter().any(Result::is_err);
        let lengths = pieces.into_iter().flatten().map(|piece| piece.len()).collect();
        (lengths, broke_off, has_changed.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_file_is_sent_in_bounded_pieces() {
        let content = vec![7; 3 * PIECE_BYTES + 1];
        let sent = sent(&content, content.len() as u64, Digest::of(&content)).await;
        assert_eq!(sent, (vec![PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1], false, false));
        assert_eq!(self::sent(&[], 0, Digest::of(&[])).await, (vec![], false, false));
    }

    #[tokio::test]
    async fn a_file_that_changed_meanwhile_is_never_whole_at_the_broker() {
        let content = vec![7; 2 * PIECE_BYTES];
        let bytes = content.len() as u64;
        let digest = Digest::of(&content);
        // Another content, and a shorter one; one that has grown is sent as it was.
        let mut other = content.clone();
        other[9] = 8;
        assert_eq!(sent(&other, bytes, digest).await, (vec![PIECE_BYTES], true, true));
        let shorter = &content[..PIECE_BYTES + 5];
        assert_eq!(sent(shorter, bytes, digest).await, (vec![PIECE_BYTES], true, true));
        let grown = [&content[..], b"more"].concat();
        assert_eq!(sent(&grown, bytes, digest).await, (vec![PIECE_BYTES; 2], false, false));
    }
}
