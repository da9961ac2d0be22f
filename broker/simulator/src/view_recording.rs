//! Recordings of views: what `gleaner view --record` wrote.

use gleaner_protocol::limits::{
    VIEW_RECORDING_BYTES_MAX, VIEW_RECORDING_S_MAX, VIEW_RECORDING_VIEWS_MAX, VIEW_WISH_BYTES_MAX,
};
use gleaner_protocol::{
    RecordedVolume, RecordingHead, RecordingLine, RecordingStep, Span, VIEW_RECORDING_VERSION,
    ViewState,
};

use crate::input_file::read_text;

/// Most chunks of a volume that was recorded.
const CHUNKS_MAX: u64 = 1 << 20;
/// Longest name of a dataset, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Largest volume along a side, in voxels, and largest brick, in bytes.
const SIDE_MAX: u32 = 1 << 20;
const BRICK_BYTES_MAX: u64 = 1 << 40;

/// What people wanted to see.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewRecording {
    /// Each view, in the order of opening.
    pub views: Vec<RecordedView>,
}

/// A view of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedView {
    /// What it is of.
    pub volume: RecordedVolume,
    /// What was wanted, and when: since the recording was begun.
    pub states: Vec<(Span, ViewState)>,
    /// When it was opened, and when nobody looked any more.
    pub opened: Span,
    /// See `opened`.
    pub closed: Span,
}

impl ViewRecording {
    /// Reads a file.
    ///
    /// # Errors
    /// Names the file, the line and what was expected.
    pub fn read(path: &str) -> Result<Self, String> {
        Self::parse(path, &read_text(path, VIEW_RECORDING_BYTES_MAX)?)
    }

    fn parse(path: &str, text: &str) -> Result<Self, String> {
        let at = |number: usize, wrong: &str| format!("{path}, line {number}: {wrong}");
        let mut lines = (1..).zip(text.split_inclusive('\n'));
        let head = lines.next().map_or("", |(_, line)| line);
        let head = serde_json::from_str(head).map_err(|_| {
            at(1, "expected {\"gleaner_views\":1}, with which gleaner view --record begins a file")
        })?;
        let RecordingHead { gleaner_views: version } = head;
        if version != VIEW_RECORDING_VERSION {
            let known = VIEW_RECORDING_VERSION;
            let wrong = format!("it is written in version {version}, expected version {known}");
            return Err(at(1, &wrong));
        }
        let mut reading = Reading::default();
        for (number, line) in lines {
            reading.take(line).map_err(|wrong| at(number, &wrong))?;
        }
        if reading.views.iter().all(|of| of.view.states.is_empty()) {
            return Err(format!("{path}: nothing was wanted: expected a state of a view"));
        }
        Ok(Self { views: reading.finish() })
    }

    /// From its beginning to the end of its last view.
    #[must_use]
    pub fn length(&self) -> Span {
        self.views.iter().map(|view| view.closed).max().unwrap_or(Span::ZERO)
    }
}

/// A file as far as it was read.
#[derive(Debug, Default)]
struct Reading {
    views: Vec<Open>,
    at: Span,
}

#[derive(Debug)]
struct Open {
    number: u32,
    is_closed: bool,
    view: RecordedView,
}

impl Reading {
    fn take(&mut self, line: &str) -> Result<(), String> {
        if line.len() > 2 * VIEW_WISH_BYTES_MAX {
            return Err(format!(
                "it has {} bytes, expected {} at most",
                line.len(),
                2 * VIEW_WISH_BYTES_MAX
            ));
        }
        if !line.ends_with('\n') {
            return Err("it is cut off: remove it, or what is left of it".into());
        }
        let RecordingLine { at_us, view, what } = serde_json::from_str(line)
            .map_err(|error| format!("it is no line of a view: {error}"))?;
        let (at, last) = (Span::from_micros(at_us), self.at);
        if at < last {
            let last_us = last.as_micros();
            return Err(format!("its time is {at_us}, expected {last_us} at least, as before it"));
        }
        if at > Span::from_secs(VIEW_RECORDING_S_MAX) {
            return Err(format!("its time is {at_us}, expected a day at most, in microseconds"));
        }
        self.at = at;
        let is_full = self.views.len() >= VIEW_RECORDING_VIEWS_MAX;
        let known = self.views.iter_mut().find(|open| open.number == view);
        match (what, known) {
            (RecordingStep::Opened(_), Some(_)) => Err(format!("view {view} is opened again")),
            (RecordingStep::Opened(_), None) if is_full => {
                Err(format!("it opens more views than {VIEW_RECORDING_VIEWS_MAX}"))
            }
            (RecordingStep::Opened(volume), None) => {
                check_volume(&volume)?;
                let recorded = RecordedView { volume, states: Vec::new(), opened: at, closed: at };
                self.views.push(Open { number: view, is_closed: false, view: recorded });
                Ok(())
            }
            (_, None) => Err(format!("view {view} was not opened before")),
            (_, Some(open)) if open.is_closed => Err(format!("view {view} was closed before")),
            (RecordingStep::Wants(state), Some(open)) => {
                state.check().map_err(|error| error.to_string())?;
                open.view.states.push((at, *state));
                Ok(())
            }
            (RecordingStep::Closed, Some(open)) => {
                (open.is_closed, open.view.closed) = (true, at);
                Ok(())
            }
        }
    }

    /// What was not closed is looked at to the end.
    fn finish(self) -> Vec<RecordedView> {
        let end = self.at;
        let views = self.views.into_iter().map(|open| {
            let closed = if open.is_closed { open.view.closed } else { end };
            RecordedView { closed, ..open.view }
        });
        views.filter(|view| !view.states.is_empty()).collect()
    }
}

fn check_volume(volume: &RecordedVolume) -> Result<(), String> {
    let expected = |good: bool, what: &str| if good { Ok(()) } else { Err(format!("its {what}")) };
    let RecordedVolume { dataset, size, spacing, steps, bricks, brick_bytes, range, .. } = volume;
    expected(dataset.len() <= NAME_BYTES_MAX, "dataset has a name that is too long")?;
    let is_side = |side: &u32| (1..=SIDE_MAX).contains(side);
    expected(size.iter().all(is_side), "size is none: expected voxels along three sides")?;
    let is_length = |length: &f64| *length > 0.0 && length.is_finite();
    expected(spacing.iter().all(is_length), "spacing is none: expected three lengths")?;
    let chunks = u64::from(*steps) * u64::from(*bricks);
    expected((1..=CHUNKS_MAX).contains(&chunks), "steps and bricks are too few or too many")?;
    expected((1..=BRICK_BYTES_MAX).contains(brick_bytes), "brick_bytes are none")?;
    let is_range = range[0].is_finite() && range[1].is_finite() && range[0] <= range[1];
    expected(is_range, "range is none: expected the least and the greatest value")
}

#[cfg(test)]
pub(crate) mod tests {
    use gleaner_protocol::ViewKernel;
    use serde_json::json;

    use super::*;

    fn state(seq: u64) -> serde_json::Value {
        json!({
            "seq": seq, "size": [512, 384], "moving": true,
            "camera": {"eye": [9, 0, 0], "target": [0, 0, 0], "up": [0, 1, 0], "fov_degrees": 30},
            "transfer": [{"value": 0, "colour": [1, 1, 1], "opacity": 0.5}],
        })
    }

    /// A recording of views of eight bricks of 16 MiB: when each wants something, and which it is.
    pub(crate) fn recording(wants: &[(u64, u32)]) -> String {
        let mut lines = vec![json!({"gleaner_views": 1})];
        let mut views: Vec<u32> = wants.iter().map(|(_, view)| *view).collect();
        views.sort_unstable();
        views.dedup();
        for view in views {
            lines.push(json!({"at_us": 0, "view": view, "what": {"opened": {
                "dataset": format!("head-{view}"), "kernel": "volume", "size": [256, 256, 256],
                "spacing": [1, 1, 1], "steps": 1, "bricks": 8, "brick_bytes": 16 << 20,
                "range": [0, 255],
            }}}));
        }
        for (seq, (at_us, view)) in wants.iter().enumerate() {
            let what = json!({"wants": state(seq as u64)});
            lines.push(json!({"at_us": at_us, "view": view, "what": what}));
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn what_was_recorded_is_read() {
        let text = recording(&[(10, 7), (20, 3), (30, 7)])
            + "{\"at_us\":40,\"view\":7,\"what\":\"closed\"}\n";
        let read = ViewRecording::parse("f", &text).expect("a recording");
        let seen = |view: &RecordedView| {
            let times: Vec<u64> = view.states.iter().map(|(at, _)| at.as_micros()).collect();
            (view.volume.dataset.clone(), times, view.closed.as_micros())
        };
        let seen: Vec<_> = read.views.iter().map(seen).collect();
        let expected = [("head-3", vec![20], 40), ("head-7", vec![10, 30], 40)];
        assert_eq!(seen, expected.map(|(name, times, closed)| (name.to_owned(), times, closed)));
        assert_eq!(read.views[0].volume.kernel, ViewKernel::Volume);
        assert_eq!(read.length(), Span::from_micros(40));
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        let good = recording(&[(10, 0), (20, 0)]);
        let changed = |from: &str, to: &str| good.replacen(from, to, 1);
        for (text, says) in [
            (String::new(), "f, line 1: expected {\"gleaner_views\":1}"),
            (changed("views\":1", "views\":2"), "f, line 1: it is written in version 2"),
            (good.trim_end().to_owned(), "f, line 4: it is cut off"),
            (good[..good.len() - 9].to_owned(), "f, line 4: it is cut off"),
            (changed("\"at_us\":10", "\"at_us\":30"), "f, line 4: its time is 20, expected 30"),
            (
                changed("\"at_us\":20", "\"at_us\":86400000001"),
                "f, line 4: its time is 86400000001",
            ),
            (changed("\"eye\":[9", "\"eye\":[NaN"), "f, line 3: it is no line of a view"),
            (changed("\"eye\":[9", "\"eye\":[1e300"), "f, line 3: camera: give finite numbers"),
            (changed("\"eye\":[9", "\"eye\":[0"), "f, line 3: camera: the eye must be elsewhere"),
            (changed("512", "4000000000"), "f, line 3: size 4000000000 x 384"),
            (
                changed("\"view\":0,\"what\":{\"w", "\"view\":1,\"what\":{\"w"),
                "view 1 was not opened",
            ),
            (changed("\"bricks\":8", "\"bricks\":0"), "f, line 2: its steps and bricks"),
            (changed("[0,255]", "[0,null]"), "f, line 2: it is no line of a view"),
            (changed("16777216", "0"), "f, line 2: its brick_bytes"),
            (good.lines().take(2).map(|line| format!("{line}\n")).collect(), "nothing was wanted"),
            (good.clone() + "\n", "f, line 5: it is no line of a view"),
        ] {
            let error = ViewRecording::parse("f", &text).expect_err(says);
            assert!(error.contains(says), "{says:?} is not in {error:?}");
        }
        let again = good.lines().nth(1).expect("opened");
        let again = good.clone() + &again.replace("\"at_us\":0", "\"at_us\":20") + "\n";
        let error = ViewRecording::parse("f", &again).expect_err("again");
        assert!(error.contains("f, line 5: view 0 is opened again"), "{error}");
    }
}
