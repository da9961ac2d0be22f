//! A checksummed entry: a list of records under a key.
//!
//! ```text
//!  version u8 │ records u32 │ body bytes u64 │ checksum 16 bytes │ body: (length u32, bytes)*
//! ```
//! Numbers are little-endian. The checksum is the first half of BLAKE3 over the key, what stands
//! before the checksum, and the body: an entry under another's key does not pass.

/// Bytes before the body.
pub(crate) const HEAD_BYTES: usize = 1 + 4 + 8 + CHECKSUM_BYTES;

const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 16;
const PLAIN_HEAD_BYTES: usize = HEAD_BYTES - CHECKSUM_BYTES;

/// Seals `records` under `key`.
#[must_use]
pub fn seal(key: &[u8], records: &[&[u8]]) -> Vec<u8> {
    let body_bytes: usize = records.iter().map(|record| 4 + record.len()).sum();
    let mut entry = Vec::with_capacity(HEAD_BYTES + body_bytes);
    entry.push(VERSION);
    let count = u32::try_from(records.len()).expect("commits are bounded");
    entry.extend_from_slice(&count.to_le_bytes());
    entry.extend_from_slice(&(body_bytes as u64).to_le_bytes());
    entry.extend_from_slice(&[0; CHECKSUM_BYTES]);
    for record in records {
        let length = u32::try_from(record.len()).expect("records are bounded");
        entry.extend_from_slice(&length.to_le_bytes());
        entry.extend_from_slice(record);
    }
    let checksum = checksum(key, &entry);
    entry[PLAIN_HEAD_BYTES..HEAD_BYTES].copy_from_slice(&checksum);
    entry
}

/// The length of the whole entry, as its head says.
pub(crate) fn entry_bytes(head: &[u8]) -> Result<usize, String> {
    let Some((&version, _)) = head.split_first() else {
        return Err("it is empty".into());
    };
    if version != VERSION {
        return Err(format!("it has version {version}, this release knows {VERSION}"));
    }
    if head.len() < HEAD_BYTES {
        return Err(format!("it is cut off after {} bytes", head.len()));
    }
    let body = u64::from_le_bytes(head[5..13].try_into().expect("eight bytes"));
    usize::try_from(body)
        .ok()
        .and_then(|body| body.checked_add(HEAD_BYTES))
        .ok_or_else(|| format!("it claims {body} bytes"))
}

/// Checks an entry and returns its records.
///
/// # Errors
/// What is wrong with it, in words.
pub fn open<'a>(key: &[u8], entry: &'a [u8]) -> Result<Vec<&'a [u8]>, String> {
    let expected = entry_bytes(entry)?;
    if entry.len() != expected {
        return Err(format!("it has {} bytes instead of {expected}", entry.len()));
    }
    if entry[PLAIN_HEAD_BYTES..HEAD_BYTES] != checksum(key, entry) {
        return Err("its checksum does not match".into());
    }
    let count = u32::from_le_bytes(entry[1..5].try_into().expect("four bytes"));
    let mut rest = &entry[HEAD_BYTES..];
    let mut records = Vec::with_capacity((count as usize).min(rest.len() / 4));
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<4>().ok_or("a record is cut off")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (record, after) = after.split_at_checked(length).ok_or("a record is cut off")?;
        records.push(record);
        rest = after;
    }
    if rest.is_empty() { Ok(records) } else { Err("something follows its records".into()) }
}

fn checksum(key: &[u8], entry: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(&entry[..PLAIN_HEAD_BYTES]);
    hasher.update(&entry[HEAD_BYTES..]);
    let mut half = [0; CHECKSUM_BYTES];
    half.copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM_BYTES]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"key";

    #[test]
    fn records_come_back_as_they_were() {
        for records in [vec![], vec![&b""[..]], vec![&b"one"[..], b"", b"three"]] {
            assert_eq!(open(KEY, &seal(KEY, &records)).expect("sound"), records);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let entry = seal(KEY, &[b"a record", b"another"]);
        for bit in 0..entry.len() * 8 {
            let mut flipped = entry.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open(KEY, &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_cut_and_every_other_key_is_noticed() {
        let entry = seal(KEY, &[b"a record"]);
        for length in 0..entry.len() {
            assert!(open(KEY, &entry[..length]).is_err(), "{length} bytes");
        }
        assert!(open(b"yek", &entry).is_err());
        let longer = [&entry[..], b"x"].concat();
        assert!(open(KEY, &longer).is_err());
    }
}
