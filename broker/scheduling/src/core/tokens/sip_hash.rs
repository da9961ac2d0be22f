//! A short keyed hash that cannot be foretold without the key.
//!
//! Source: J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012; the
//! variant with two rounds per word and four at the end.

/// SipHash-2-4 under way.
pub(super) struct SipHash([u64; 4]);

impl SipHash {
    pub(super) fn new(key: [u64; 2]) -> Self {
        Self([
            key[0] ^ 0x736f_6d65_7073_6575,
            key[1] ^ 0x646f_7261_6e64_6f6d,
            key[0] ^ 0x6c79_6765_6e65_7261,
            key[1] ^ 0x7465_6462_7974_6573,
        ])
    }

    /// Takes eight bytes of the message.
    pub(super) fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    /// Takes the rest of a message of so many bytes in all, and returns its hash.
    pub(super) fn finish(mut self, bytes: &[u8], length: usize) -> u64 {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = length as u8;
        self.word(u64::from_le_bytes(last));
        self.0[2] ^= 0xff;
        (0..4).for_each(|_| self.round());
        self.0.iter().fold(0, |sum, word| sum ^ word)
    }

    fn round(&mut self) {
        let [a, b, c, d] = &mut self.0;
        *a = a.wrapping_add(*b);
        *b = b.rotate_left(13) ^ *a;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*d);
        *d = d.rotate_left(16) ^ *c;
        *a = a.wrapping_add(*d);
        *d = d.rotate_left(21) ^ *a;
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_examples_come_out() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(SipHash::new(key).finish(&message, 15), 0xa129_ca61_49be_45e5);
        assert_eq!(SipHash::new(key).finish(&[], 0), 0x726f_db47_dd0e_0e31);
        let mut words = SipHash::new(key);
        words.word(u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(words.finish(&message[8..], 15), 0xa129_ca61_49be_45e5);
    }
}
