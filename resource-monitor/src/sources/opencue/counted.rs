//! How much an RQD reports, seen before it is taken apart: protocol buffers grow as they are.

use prost::{DecodeError, Message};

use crate::limits::{RQD_ATTRIBUTES_MAX, RQD_FRAMES_MAX};

/// An answer, of which nothing is kept but how much it has of each.
#[derive(Message)]
struct Counted {
    #[prost(message, optional, tag = "1")]
    host_report: Option<CountedReport>,
}

#[derive(Message)]
struct CountedReport {
    #[prost(message, optional, tag = "1")]
    host: Option<CountedHost>,
    #[prost(message, repeated, tag = "2")]
    frames: Vec<()>,
}

#[derive(Message)]
struct CountedHost {
    #[prost(message, repeated, tag = "17")]
    attributes: Vec<()>,
}

/// The same once more, of an answer with few frames: each with how many attributes it has.
#[derive(Message)]
struct CountedFrames {
    #[prost(message, optional, tag = "1")]
    host_report: Option<CountedFramesReport>,
}

#[derive(Message)]
struct CountedFramesReport {
    #[prost(message, repeated, tag = "2")]
    frames: Vec<CountedFrame>,
}

#[derive(Message)]
struct CountedFrame {
    #[prost(message, repeated, tag = "13")]
    attributes: Vec<()>,
}

/// Whether an answer would take far more memory than its bytes: an empty part takes two of these, and
/// a hundred here.
pub(super) fn is_too_much(answer: &[u8]) -> Result<bool, DecodeError> {
    let report = Counted::decode(answer)?.host_report.unwrap_or_default();
    let attributes = report.host.map_or(0, |host| host.attributes.len());
    if report.frames.len() > RQD_FRAMES_MAX || attributes > RQD_ATTRIBUTES_MAX {
        return Ok(true);
    }
    let report = CountedFrames::decode(answer)?.host_report.unwrap_or_default();
    let of_frames: usize = report.frames.iter().map(|frame| frame.attributes.len()).sum();
    Ok(of_frames > RQD_ATTRIBUTES_MAX)
}
