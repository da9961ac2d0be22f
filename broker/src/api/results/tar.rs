//! The parts of a tar file: heads of its members, as POSIX has them.

/// Members begin at multiples of this.
const BLOCK: usize = 512;
/// Longest path in a head itself, in bytes.
const SHORT_PATH: usize = 100;

/// What ends a file.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// What stands before the content of a file. A path that is long, or not ASCII, stands in a member of its
/// own before that.
pub(super) fn head(path: &str, bytes: u64, at_s: u64) -> Vec<u8> {
    let mut all = Vec::new();
    if path.len() > SHORT_PATH || !path.is_ascii() {
        let record = record("path", path);
        all.extend(block(b"path", record.len() as u64, at_s, b'x'));
        all.extend_from_slice(record.as_bytes());
        all.extend_from_slice(padding(record.len() as u64));
    }
    let short = &path.as_bytes()[..path.floor_char_boundary(SHORT_PATH)];
    all.extend(block(short, bytes, at_s, b'0'));
    all
}

/// What stands behind a content of this length.
pub(super) fn padding(bytes: u64) -> &'static [u8] {
    const NOTHING: [u8; BLOCK] = [0; BLOCK];
    let over = (bytes % BLOCK as u64) as usize;
    &NOTHING[..(BLOCK - over) % BLOCK]
}

/// A line of an extended head, which begins with its own length.
fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len() + 1;
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    format!("{length}{rest}")
}

fn block(path: &[u8], bytes: u64, at_s: u64, kind: u8) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, field: &[u8]| block[at..at + field.len()].copy_from_slice(field);
    put(0, path);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    // Eleven octal digits: no content that is kept is as long as 8 GiB.
    put(124, format!("{:011o}\0", bytes & 0o77_777_777_777).as_bytes());
    put(136, format!("{:011o}\0", at_s & 0o77_777_777_777).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_their_own_length() {
        assert_eq!(record("path", "a"), "9 path=a\n");
        for count in 80..120 {
            let line = record("path", &"x".repeat(count));
            let (length, _) = line.split_once(' ').expect("a length");
            assert_eq!(length.parse(), Ok(line.len()));
        }
    }

    #[test]
    fn members_begin_at_whole_blocks() {
        for path in ["job-1/0/stdout".to_owned(), "x".repeat(150), "ü".repeat(60)] {
            let head = head(&path, 700, 1);
            assert_eq!(head.len() % BLOCK, 0);
            let last = &head[head.len() - BLOCK..];
            assert_eq!(&last[257..263], b"ustar\0");
            assert_eq!(&last[124..136], b"00000001274\0");
            assert_eq!(head.len() > BLOCK, path.len() > 100, "{path}");
        }
        assert_eq!((padding(0).len(), padding(1).len(), padding(512).len()), (0, 511, 0));
    }
}
