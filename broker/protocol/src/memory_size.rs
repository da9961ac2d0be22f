//! Sizes of memory as farm managers write them.

/// Sizes from here on are taken for nonsense, in bytes.
const BYTES_MAX: f64 = 1e18;

/// A size with its unit (`23.5G`, `8gb`, `1048576kb`, bare bytes) in MiB, rounded up, for what is
/// booked is never made smaller. None where it is no such size; PBS's sizes in words are none.
#[must_use]
pub fn mib_of(text: &str) -> Option<u64> {
    let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let (number, unit) = text.split_at(end);
    let bytes_per_unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        "t" | "tb" => 1 << 40,
        _ => return None,
    };
    // Exact for whole numbers below 2^53: the unit is a power of two.
    let bytes = number.parse::<f64>().ok()? * bytes_per_unit as f64;
    (0.0..BYTES_MAX).contains(&bytes).then(|| (bytes / f64::from(1 << 20)).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_are_rounded_up() {
        for (text, mib) in [
            ("23.5G", Some(24_064)),
            ("8gb", Some(8_192)),
            ("2GB", Some(2_048)),
            ("512mb", Some(512)),
            ("1tb", Some(1 << 20)),
            ("1048576kb", Some(1_024)),
            ("1048577kb", Some(1_025)),
            ("1", Some(1)),
            ("0", Some(0)),
            ("0kb", Some(0)),
            ("-", None),
            ("", None),
            ("gb", None),
            ("inf", None),
            ("NaNgb", None),
            ("-1G", None),
            ("-1mb", None),
            ("9e99T", None),
            ("99999999999999999tb", None),
            ("4gw", None),
        ] {
            assert_eq!(mib_of(text), mib, "{text:?}");
        }
    }
}
