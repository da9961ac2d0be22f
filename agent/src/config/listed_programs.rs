//! Which files the programs of an allow-list are.
//!
//! Who asks for a file on a server that does not answer waits for as long as that lasts, and an
//! agent that waits is no agent: so each is asked for by a thread of its own, and given up in time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;

use gleaner_protocol::{Span, boottime};

/// What a listed path is.
#[derive(Debug)]
pub(super) enum Listed {
    /// A file, of which this is the path without symbolic links.
    File(PathBuf),
    /// There, and no file.
    NoFile,
    /// Not there.
    Missing(io::Error),
    /// Nobody knows: its file system does not answer.
    Unknown,
}

/// What these are, as far as that is known in time.
pub(super) fn look_up(listed: &[PathBuf], limit: Span) -> Vec<Listed> {
    look_up_with(listed, limit, look)
}

fn look(path: &Path) -> Listed {
    match fs::canonicalize(path) {
        Ok(resolved) if resolved.is_file() => Listed::File(resolved),
        Ok(_) => Listed::NoFile,
        Err(error) => Listed::Missing(error),
    }
}

fn look_up_with(listed: &[PathBuf], limit: Span, look: fn(&Path) -> Listed) -> Vec<Listed> {
    let end = boottime() + limit;
    let asked: Vec<_> = listed
        .iter()
        .map(|path| {
            let (tell, told) = channel();
            let path = path.clone();
            let asks = move || drop(tell.send(look(&path)));
            // Where there is no thread to be had nothing is told.
            drop(thread::Builder::new().name("gleaner-look".into()).spawn(asks));
            told
        })
        .collect();
    let answers = asked.into_iter().map(|told| told.recv_timeout(end.since(boottime()).into()));
    answers.map(|answer| answer.unwrap_or(Listed::Unknown)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_does_not_answer_hides_nothing_of_the_others() {
        let look = |path: &Path| match path.to_str() {
            Some("/net/hung") => loop {
                thread::park();
            },
            _ => look(path),
        };
        let listed = ["/bin/sh", "/net/hung", "/no/such", "/tmp"].map(PathBuf::from);
        let found = look_up_with(&listed, Span::from_secs(1), look);
        let [Listed::File(shell), Listed::Unknown, Listed::Missing(error), Listed::NoFile] =
            &found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!(Some(shell), fs::canonicalize("/bin/sh").ok().as_ref());
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
