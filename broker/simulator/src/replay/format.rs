//! Which kind of log a file is.

use super::log::{Lines, LogError, quoted};
use super::trace::Trace;
use super::{condor, recording, swf};

/// Words for the kinds; the first one has the file say it.
pub(crate) const FORMATS: &[&str] = &["detect", "recording", "htcondor", "swf"];

/// Reads a log of a kind, or of the kind that its first line is of. `cores_per_host` is 0 where
/// the log decides.
///
/// # Errors
/// It is none of them, or not a right one.
pub(crate) fn read(path: &str, format: &str, cores_per_host: u32) -> Result<Trace, LogError> {
    read_lines(Lines::open(path)?, format, cores_per_host)
}

/// The same of lines that are open.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_lines(
    mut lines: Lines,
    format: &str,
    cores_per_host: u32,
) -> Result<Trace, LogError> {
    let format = if format == "detect" { detect(&mut lines)? } else { format };
    match format {
        "recording" => recording::read(lines),
        "htcondor" => condor::read(lines, cores_per_host.max(1)),
        "swf" => swf::read(lines, cores_per_host),
        other => unreachable!("{other} is one of FORMATS"),
    }
}

fn detect(lines: &mut Lines) -> Result<&'static str, LogError> {
    const EXPECTED: &str = "a recording of gleaner monitor ({\"recording\": …}), a user log of HTCondor (001 (17.0.0) …) or the Standard Workload Format (; MaxProcs: …)";
    let Some(line) = lines.peek()? else {
        return Err(LogError::empty(lines.path(), EXPECTED));
    };
    if recording::is_head(line) {
        Ok("recording")
    } else if condor::is_head(line) {
        Ok("htcondor")
    } else if swf::is_head(line) {
        Ok("swf")
    } else {
        let found = quoted(line);
        Err(lines.wrong(found, EXPECTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::{Cursor, Write};

    fn read_bytes(bytes: Vec<u8>) -> Result<Trace, String> {
        let lines = Lines::of("log", Box::new(Cursor::new(bytes)));
        let lines = lines.map_err(|error| error.to_string())?;
        read_lines(lines, "detect", 0).map_err(|error| error.to_string())
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(text.as_bytes()).expect("memory takes it");
        packer.finish().expect("memory takes it")
    }

    const CONDOR: &str = "\n001 (7.0.0) 05/10 10:00:00 Job executing on host: <a:1>\n...\n005 (7.0.0) 05/10 10:00:09 Job terminated.\n...\n";
    const SWF: &str = "; MaxProcs: 4\n1 0 0 9 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1\n";

    #[test]
    fn a_log_says_itself_what_it_is_packed_or_not() {
        for text in [CONDOR, SWF] {
            for bytes in [text.as_bytes().to_vec(), packed(text)] {
                assert_eq!(read_bytes(bytes).expect(text).core_time().busy, 9_000_000);
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let mut cut = packed(&CONDOR.repeat(1000));
        cut.truncate(cut.len() - 9);
        for (bytes, says) in [
            (Vec::new(), "nothing to replay"),
            (packed(""), "nothing to replay"),
            (b"\n\n  \n".to_vec(), "nothing to replay"),
            (b"hello\n".to_vec(), "line 1: \"hello\"; expected a recording of"),
            (b"<?xml version=\"1.0\"?>".to_vec(), "expected a recording of"),
            (vec![0x7f, 0x45, 0x4c, 0x46, 0, 0, 1], "it is not text"),
            (vec![0xff, 0xfe, 0xc0, 0x80], "it is not text"),
            (vec![b'x'; 2 << 20], "longer than that"),
            (cut, "cannot read on"),
            (vec![0x1f, 0x8b, 8, 0, 0], "cannot read on"),
        ] {
            let error = read_bytes(bytes).expect_err(says);
            assert!(error.contains(says) && error.contains("expected"), "{error}");
            assert!(error.starts_with("log"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read("/no/such/log", "detect", 0).expect_err("not there").to_string();
        assert!(error.contains("cannot open /no/such/log"), "{error}");
        let error = read("/", "detect", 0).expect_err("a folder").to_string();
        assert!(error.contains("it is a folder"), "{error}");
    }
}
