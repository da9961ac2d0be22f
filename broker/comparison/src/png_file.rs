//! PNG files of eight bits a channel.

use std::io::Cursor;

use crate::limits::UNPACKED_BYTES_MAX;

/// What each begins with.
const MARK: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// Whether two files are alike.
pub(crate) fn are_alike(one: &[u8], other: &[u8]) -> bool {
    let header = header_of_plain(one);
    if header.is_none() || header != header_of_plain(other) {
        return false;
    }
    let (Some(one), Some(other)) = (channels(one), channels(other)) else { return false };
    let mut pixels = one.pixels().zip(other.pixels());
    one.bytes.len() == other.bytes.len() && pixels.all(|(a, b)| are_near(a, b, one.has_opacity))
}

/// Whether two pixels differ by at most one step of what shows of them. In a file colours are
/// divided by the opacity: a step of what shows is many where there is little to divide by.
fn are_near(one: &[u8], other: &[u8], have_opacity: bool) -> bool {
    let opacity = |pixel: &[u8]| if have_opacity { pixel.last().copied() } else { None };
    let least = opacity(one).min(opacity(other)).unwrap_or(u8::MAX);
    let colours = one.len() - usize::from(have_opacity);
    let mut differences = one.iter().zip(other).map(|(a, b)| a.abs_diff(*b));
    let steps = u16::from(u8::MAX);
    differences.by_ref().take(colours).all(|by| u16::from(by) * u16::from(least) <= steps)
        && differences.all(|by| by <= 1)
}

/// What is in a file.
struct Channels {
    /// Of all pixels, where 1/255 is 1.
    bytes: Vec<u8>,
    /// How many a pixel has.
    each: usize,
    /// Whether the last one is its opacity.
    has_opacity: bool,
}

impl Channels {
    fn pixels(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.each)
    }
}

/// The header of a file that is a header, data, an end, and nothing else.
fn header_of_plain(file: &[u8]) -> Option<&[u8]> {
    let (kind, header, mut rest) = chunk(file.strip_prefix(&MARK)?)?;
    if kind != b"IHDR" {
        return None;
    }
    while let Some((kind, _, behind)) = chunk(rest) {
        match kind {
            b"IDAT" => rest = behind,
            b"IEND" if behind.is_empty() => return Some(header),
            _ => return None,
        }
    }
    None
}

/// The first chunk: what it is, what is in it, and what comes behind its checksum.
fn chunk(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, rest) = rest.split_first_chunk::<4>()?;
    let (content, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (_, behind) = rest.split_first_chunk::<4>()?;
    Some((kind, content, behind))
}

fn channels(file: &[u8]) -> Option<Channels> {
    let limits = png::Limits { bytes: UNPACKED_BYTES_MAX };
    let mut options = png::DecodeOptions::default();
    options.set_ignore_adler32(false);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(file), options);
    decoder.set_limits(limits);
    let mut reader = decoder.read_info().ok()?;
    let info = reader.info();
    let (color, depth) = (info.color_type, info.bit_depth);
    let bytes = reader.output_buffer_size().filter(|bytes| *bytes <= UNPACKED_BYTES_MAX)?;
    if depth != png::BitDepth::Eight || color == png::ColorType::Indexed {
        return None;
    }
    let mut channels = vec![0; bytes];
    reader.next_frame(&mut channels).ok()?;
    reader.finish().ok()?;
    let has_opacity = matches!(color, png::ColorType::Rgba | png::ColorType::GrayscaleAlpha);
    Some(Channels { bytes: channels, each: color.samples(), has_opacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, channels: &[u8], text: Option<&str>) -> Vec<u8> {
        let mut file = Vec::new();
        let height = u32::try_from(channels.len()).expect("small") / 4 / width;
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        if let Some(text) = text {
            encoder.add_text_chunk("Comment".into(), text.into()).expect("memory");
        }
        let mut writer = encoder.write_header().expect("memory");
        writer.write_image_data(channels).expect("memory");
        writer.finish().expect("memory");
        file
    }

    #[test]
    fn a_picture_is_like_one_that_no_channel_of_which_differs_by_more_than_one_step() {
        let one = png(2, &[10, 20, 30, 255, 0, 0, 0, 0], None);
        assert!(are_alike(&one, &png(2, &[11, 19, 30, 254, 1, 0, 0, 0], None)));
        assert!(!are_alike(&one, &png(2, &[12, 20, 30, 255, 0, 0, 0, 0], None)));
        assert!(!are_alike(&one, &png(1, &[10, 20, 30, 255, 0, 0, 0, 0], None)), "another shape");
        assert!(!are_alike(&one, &one[..one.len() / 2]), "half of it");
    }

    #[test]
    fn what_is_next_to_invisible_may_be_of_any_colour() {
        let one = png(2, &[10, 20, 30, 255, 0, 0, 0, 0], None);
        assert!(are_alike(&one, &png(2, &[10, 20, 30, 255, 200, 90, 9, 1], None)));
        assert!(!are_alike(&one, &png(2, &[10, 20, 30, 255, 200, 90, 9, 2], None)));
        let alike = |a: [u8; 4], b: [u8; 4]| are_alike(&png(1, &a, None), &png(1, &b, None));
        assert!(alike([51, 128, 255, 1], [9, 0, 0, 2]), "255 steps are one, of 255");
        assert!(alike([100, 0, 0, 5], [151, 0, 0, 5]), "51 steps are one, of five times as many");
        assert!(!alike([100, 0, 0, 5], [152, 0, 0, 5]));
        assert!(alike([100, 0, 0, 127], [102, 0, 0, 128]));
        assert!(!alike([100, 0, 0, 128], [102, 0, 0, 128]));
        assert!(!alike([100, 0, 0, 255], [102, 0, 0, 255]));
    }

    #[test]
    fn what_says_more_than_pixels_is_like_nothing() {
        let with = |text| png(1, &[10, 20, 30, 255], text);
        assert!(are_alike(&with(None), &png(1, &[10, 20, 31, 255], None)));
        assert!(!are_alike(&with(None), &with(Some("a"))));
        assert!(!are_alike(&with(Some("a")), &with(Some("b"))));
        let longer = [with(None), b"and more".to_vec()].concat();
        assert!(!are_alike(&with(None), &longer));
    }

    #[test]
    fn a_picture_that_promises_more_than_memory_is_not_read() {
        let mut huge = png(2, &[0; 8], None);
        // The width stands behind eight bytes of mark, and eight of the first chunk's head.
        huge[16..20].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
        huge[20..24].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
        assert!(channels(&huge).is_none());
        let chunk_beyond = [&MARK[..], &u32::MAX.to_be_bytes(), b"IHDR"].concat();
        assert_eq!(header_of_plain(&chunk_beyond), None);
    }
}
