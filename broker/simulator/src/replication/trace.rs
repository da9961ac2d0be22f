//! Recorded loads from a file.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use super::load::{Day, SAMPLES};
use crate::input_file::read_bytes;
use crate::limits::TRACE_BYTES_MAX;

/// The days of a trace: a line for each server, `name,288 values`, CPU per cent every five
/// minutes; packed by gzip or not. Empty lines are skipped.
///
/// # Errors
/// Names the file, the line and what was expected.
pub(crate) fn read_trace(path: &str) -> Result<Vec<Day>, String> {
    let bytes = read_bytes(path, TRACE_BYTES_MAX)?;
    let mut text = Vec::new();
    let read = if bytes.starts_with(&[0x1f, 0x8b]) {
        MultiGzDecoder::new(bytes.as_slice()).take(TRACE_BYTES_MAX + 1).read_to_end(&mut text)
    } else {
        bytes.as_slice().take(TRACE_BYTES_MAX + 1).read_to_end(&mut text)
    };
    read.map_err(|error| format!("cannot unpack {path}: {error}"))?;
    if text.len() as u64 > TRACE_BYTES_MAX {
        return Err(format!("{path} has more than {} MiB", TRACE_BYTES_MAX >> 20));
    }
    let text = String::from_utf8(text)
        .map_err(|_| format!("{path}: expected lines of text, `name,{SAMPLES} values`"))?;
    parse_trace(path, &text)
}

fn parse_trace(path: &str, text: &str) -> Result<Vec<Day>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let days: Vec<Day> = lines
        .map(|(index, line)| {
            parse_line(line).map_err(|wrong| format!("{path}, line {}: {wrong}", index + 1))
        })
        .collect::<Result<_, _>>()?;
    if days.is_empty() {
        return Err(format!(
            "{path} is empty: expected a line `name,{SAMPLES} values` for each server"
        ));
    }
    Ok(days)
}

fn parse_line(line: &str) -> Result<Day, String> {
    let mut fields = line.trim_end().split(',').map(str::trim);
    let name = fields.next().unwrap_or_default();
    if name.is_empty() {
        return Err("expected a server's name first".into());
    }
    let mut day = [0.0; SAMPLES];
    let mut count = 0;
    for field in fields {
        let value: f64 = field.parse().map_err(|_| {
            let shown: String = field.chars().take(40).collect();
            format!("value {} of {name} is {shown:?}, expected a number", count + 1)
        })?;
        if !(0.0..=100.0).contains(&value) {
            let number = count + 1;
            return Err(format!(
                "value {number} of {name} is {value}, expected CPU per cent from 0 to 100"
            ));
        }
        if let Some(sample) = day.get_mut(count) {
            *sample = value;
        }
        count += 1;
    }
    if count != SAMPLES {
        return Err(format!(
            "{name} has {count} values, expected {SAMPLES}, one every five minutes of a day"
        ));
    }
    Ok(day)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn line(name: &str, count: usize, last: &str) -> String {
        let mut fields = vec![name.to_owned()];
        fields.extend((1..count).map(|_| "7".to_owned()));
        fields.push(last.into());
        fields.join(",")
    }

    #[test]
    fn a_day_for_each_line() {
        let text = format!("{}\n\n{}\r\n", line("a", 288, "12.5"), line("b", 288, "100"));
        let days = parse_trace("loads.csv", &text).expect("two days");
        assert_eq!(days.len(), 2);
        assert_eq!((days[0][0], days[0][287], days[1][287]), (7.0, 12.5, 100.0));
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        for (text, says) in [
            (String::new(), "loads.csv is empty: expected a line"),
            ("\n  \n".into(), "is empty"),
            (line("a", 287, "1"), "line 1: a has 287 values, expected 288"),
            (line("a", 289, "1"), "line 1: a has 289 values, expected 288"),
            (line("a", 288, "-1"), "line 1: value 288 of a is -1, expected CPU per cent"),
            (line("a", 288, "101"), "value 288 of a is 101"),
            (line("a", 288, "NaN"), "value 288 of a is NaN"),
            (line("a", 288, "inf"), "value 288 of a is inf"),
            (line("a", 288, "x"), "value 288 of a is \"x\", expected a number"),
            (line("a", 288, ""), "value 288 of a is \"\", expected a number"),
            (line("", 288, "1"), "expected a server's name first"),
            (format!("{}\n\nb,1", line("a", 288, "1")), "line 3: b has 1 values"),
        ] {
            let error = parse_trace("loads.csv", &text).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn packed_or_not_and_not_there() {
        let folder = std::env::temp_dir().join(format!("gleaner-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (plain, packed) = (folder.join("a.csv"), folder.join("a.csv.gz"));
        let text = line("a", 288, "3");
        std::fs::write(&plain, &text).expect("written");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("packed");
        let bytes = encoder.finish().expect("packed");
        std::fs::write(&packed, &bytes).expect("written");
        let read = |path: &std::path::Path| read_trace(path.to_str().expect("plain"));
        assert_eq!(read(&plain), read(&packed));
        std::fs::write(&packed, &bytes[..bytes.len() / 2]).expect("written");
        assert!(read(&packed).expect_err("torn").contains("cannot unpack"));
        let absent = read(&folder.join("none.csv")).expect_err("absent");
        assert!(absent.contains("cannot be read") && absent.contains("none.csv"), "{absent}");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
