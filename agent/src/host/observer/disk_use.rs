//! Whether a replica keeps a disk busy, by what it reads and writes.
//!
//! A bucket that what goes to and from disks flows into, and that loses a little all the time: who has
//! just read an input or loaded a library fills a part of it, who goes on and on fills it.

use gleaner_protocol::Time;

use crate::limits::{DISK_BUCKET_KIB, DISK_LEAK_KIB_S, DISK_LOOKS_MS};

/// The bucket of one replica.
#[derive(Debug, Default)]
pub(super) struct DiskUse {
    level_kib: u64,
    looked: Time,
}

impl DiskUse {
    /// Of a replica that has done nothing yet.
    pub(super) const fn begin(now: Time) -> Self {
        Self { level_kib: 0, looked: now }
    }

    /// Whether it is time for another look.
    pub(super) fn is_due(&self, now: Time) -> bool {
        now.since(self.looked).as_millis() >= DISK_LOOKS_MS
    }

    /// It has read and written so much since the last look.
    pub(super) fn add(&mut self, now: Time, kib: u64) {
        let passed_ms = now.since(self.looked).as_millis();
        let lost = passed_ms.saturating_mul(DISK_LEAK_KIB_S) / 1_000;
        if lost > 0 {
            // Looks that follow each other sooner lose nothing, and what is lost at the next is more.
            self.looked = now;
        }
        self.level_kib =
            self.level_kib.saturating_sub(lost).saturating_add(kib).min(DISK_BUCKET_KIB);
    }

    /// Whether the bucket is full.
    pub(super) const fn is_full(&self) -> bool {
        self.level_kib >= DISK_BUCKET_KIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    #[test]
    fn who_goes_on_and_on_is_known_and_who_reads_an_input_is_not() {
        let mut disk = DiskUse::begin(at_ms(0));
        disk.add(at_ms(400), DISK_BUCKET_KIB / 2);
        assert!(!disk.is_full(), "an input");
        for look in 2..1_000 {
            disk.add(at_ms(look * 400), DISK_LEAK_KIB_S * 4 / 10);
        }
        assert!(!disk.is_full(), "a little, for long");
        disk.add(at_ms(400_100), DISK_BUCKET_KIB / 2);
        disk.add(at_ms(400_200), DISK_BUCKET_KIB / 2);
        assert!(disk.is_full());
    }

    #[test]
    fn who_stood_still_is_known_again_at_once_where_it_goes_on() {
        let mut disk = DiskUse::begin(at_ms(0));
        disk.add(at_ms(1), u64::MAX);
        assert!(disk.is_full());
        disk.add(at_ms(20_001), 0);
        assert!(!disk.is_full());
        disk.add(at_ms(20_401), 20 * DISK_LEAK_KIB_S);
        assert!(!disk.is_full());
        disk.add(at_ms(20_501), DISK_LEAK_KIB_S);
        assert!(disk.is_full());
    }

    #[test]
    fn looks_in_quick_succession_do_not_keep_it_full() {
        let mut disk = DiskUse::begin(at_ms(0));
        disk.add(at_ms(1), u64::MAX);
        for ms in 2..10_000 {
            disk.add(at_ms(ms), 0);
        }
        assert!(disk.level_kib <= DISK_BUCKET_KIB - 9 * DISK_LEAK_KIB_S, "{disk:?}");
    }
}
