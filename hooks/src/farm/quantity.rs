//! Numbers as farm managers write them.

use gleaner_protocol::limits::CORES_MAX;

use crate::limits::GPUS_MAX;

/// A positive number of cores, none where the text is none.
pub(super) fn cores(text: &str) -> Option<u32> {
    text.parse().ok().filter(|cores| (1..=CORES_MAX).contains(cores))
}

/// A number of GPUs, 0 included.
pub(super) fn gpus(text: &str) -> Option<u32> {
    text.parse().ok().filter(|gpus| *gpus <= GPUS_MAX)
}

/// How many GPUs a list of their numbers has: `0,2-3` has three.
pub(super) fn gpus_in_list(text: &str) -> Option<u32> {
    let mut all: u32 = 0;
    for item in text.split(',') {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        all = all.checked_add(high.checked_sub(low)?.checked_add(1)?)?;
    }
    (all <= GPUS_MAX).then_some(all)
}

/// KiB as MiB, rounded up: a booking is never made smaller.
pub(super) fn mib_of_kib(text: &str) -> Option<u64> {
    text.parse().ok().map(|kib: u64| kib.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_gpus_are_counted() {
        for (text, expected) in [
            ("0", Some(1)),
            ("0,2-3", Some(3)),
            ("0-7", Some(8)),
            (" 1 , 2 ", Some(2)),
            ("", None),
            ("a", None),
            ("3-1", None),
            ("0-4294967295", None),
            ("0-100000", None),
        ] {
            assert_eq!(gpus_in_list(text), expected, "{text:?}");
        }
        assert_eq!(
            (gpus("0"), gpus("2"), gpus("-1"), gpus("99999")),
            (Some(0), Some(2), None, None)
        );
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(mib_of_kib("1"), Some(1));
        assert_eq!(mib_of_kib("4194304"), Some(4096));
    }
}
