//! The demo's live picture on stderr: drawn where stderr is a terminal, else a line now and then.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use gleaner_protocol::api::HostStatus;
use gleaner_protocol::{Span, Time, boottime};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::cluster::Host;
use super::positions::Position;
use crate::release_watch::Release;

/// Jobs that have a line of their own.
const JOB_LINES: usize = 3;
/// How often a line is written where there is no terminal.
const PLAIN_INTERVAL: Span = Span::from_secs(5);
/// How often the picture is drawn anew.
const TICK: Duration = Duration::from_millis(100);

/// A core on which a render runs: bright red.
const RENDER_CELL: &str = "\u{1b}[91m██\u{1b}[0m ";
/// A core on which harvested work runs: green.
const HARVEST_CELL: &str = "\u{1b}[32m██\u{1b}[0m ";
/// A core without work: dim.
const FREE_CELL: &str = "\u{1b}[2m░░\u{1b}[0m ";

/// A job that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct JobView {
    pub(super) name: &'static str,
    pub(super) decided: u32,
    pub(super) workunits: u32,
}

/// The picture.
pub(super) struct Show {
    began: Time,
    canvas: Option<Canvas>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    phase: String,
    /// Frame and cores that a host renders now.
    renders: BTreeMap<String, (u32, u32)>,
    /// Replicas that a host runs now.
    running: BTreeMap<String, u32>,
    /// Cores that a host has.
    cores: BTreeMap<String, u32>,
    frames: (usize, usize),
    workunits: u32,
    correct: u32,
    wrong: u32,
    releases_ms: Vec<f64>,
    next_line: Time,
}

struct Canvas {
    all: MultiProgress,
    time: ProgressBar,
    hosts: BTreeMap<String, ProgressBar>,
    jobs: Vec<ProgressBar>,
    counters: ProgressBar,
}

impl Show {
    /// Begins to draw; `length` is how long the whole demo may take.
    pub(super) fn begin(length: Span) -> Self {
        let canvas = std::io::stderr().is_terminal().then(|| Canvas::new(length));
        Self { began: boottime(), canvas, state: RefCell::default() }
    }

    /// Who wants to can watch.
    pub(super) fn pages(&self, broker_url: &str) {
        self.line(format!("watch it in a browser: {broker_url}/"));
    }

    /// Who wants to can turn a volume.
    pub(super) fn view(&self, url: &str) {
        self.line(format!("turn a volume on what is left: {url}"));
    }

    fn line(&self, line: String) {
        match &self.canvas {
            // A terminal that is drawn on takes lines above the picture alone.
            Some(canvas) => drop(canvas.all.println(line)),
            None => eprintln!("{line}"),
        }
    }

    /// The hosts are there.
    pub(super) fn hosts_ready(&self, hosts: &[Host]) {
        let cores = hosts.iter().map(|host| (host.name.clone(), host.cores));
        self.state.borrow_mut().cores = cores.collect();
        for host in hosts {
            self.draw_host(&host.name);
        }
    }

    /// Another part of the demo begins.
    pub(super) fn phase(&self, text: &str, frames: usize) {
        let mut state = self.state.borrow_mut();
        state.phase = text.to_owned();
        state.frames = (0, frames);
        state.next_line = Time::ZERO;
        drop(state);
        self.refresh();
    }

    pub(super) fn render_starts(&self, host: &str, frame: u32, cores: u32) {
        self.state.borrow_mut().renders.insert(host.to_owned(), (frame, cores));
        self.draw_host(host);
    }

    pub(super) fn render_ends(&self, host: &str) {
        self.state.borrow_mut().renders.remove(host);
        self.draw_host(host);
    }

    pub(super) fn frame_done(&self) {
        self.state.borrow_mut().frames.0 += 1;
        self.refresh();
    }

    pub(super) fn released(&self, release: Release) {
        let took = release.took.map(|took| took.as_secs_f64() * 1e3);
        self.state.borrow_mut().releases_ms.extend(took);
        self.refresh();
    }

    pub(super) fn hosts(&self, hosts: &[HostStatus]) {
        for host in hosts {
            let name = host.host.as_str();
            self.state.borrow_mut().running.insert(name.to_owned(), host.running);
            self.draw_host(name);
        }
    }

    pub(super) fn jobs(&self, jobs: &[JobView]) {
        let Some(canvas) = &self.canvas else { return };
        for (index, bar) in canvas.jobs.iter().enumerate() {
            match jobs.get(index) {
                Some(job) => {
                    bar.set_length(job.workunits.into());
                    bar.set_position(job.decided.into());
                    bar.set_prefix(job.name);
                    bar.set_message(format!("{} of {} workunits", job.decided, job.workunits));
                }
                None => {
                    bar.set_position(0);
                    bar.set_prefix("");
                    bar.set_message("");
                }
            }
        }
    }

    pub(super) fn workunits(&self, completed: u32) {
        self.state.borrow_mut().workunits = completed;
        self.refresh();
    }

    /// A position is complete; `right` says whether its count is the published one.
    pub(super) fn position_counted(&self, position: &Position, right: Option<bool>) {
        let mut state = self.state.borrow_mut();
        let right = right == Some(true);
        *if right { &mut state.correct } else { &mut state.wrong } += 1;
        drop(state);
        let told = if right { "as published" } else { "NOT as published" };
        let line = format!("{}: {} paths, {told}", position.name, grouped(position.paths));
        match &self.canvas {
            Some(canvas) if !right => canvas.time.println(line),
            Some(_) => {}
            None => eprintln!("{line}"),
        }
    }

    /// Takes the picture away.
    pub(super) fn end(&self) {
        if let Some(canvas) = &self.canvas {
            canvas.time.disable_steady_tick();
            let _ = canvas.all.clear();
        }
    }

    fn refresh(&self) {
        let now = boottime();
        let mut state = self.state.borrow_mut();
        let text = state.counters();
        match &self.canvas {
            Some(canvas) => {
                canvas.time.set_position(now.since(self.began).as_millis());
                canvas.time.set_message(state.phase.clone());
                canvas.counters.set_message(text);
            }
            None if now >= state.next_line => {
                state.next_line = now + PLAIN_INTERVAL;
                let since = now.since(self.began).as_secs_f64();
                eprintln!("{since:5.1} s  {}: {text}", state.phase);
            }
            None => {}
        }
    }

    fn draw_host(&self, name: &str) {
        let Some(canvas) = &self.canvas else { return };
        let Some(bar) = canvas.hosts.get(name) else { return };
        bar.set_message(self.state.borrow().host_line(name));
    }
}

impl State {
    /// A cell for each core, then the same in words.
    fn host_line(&self, name: &str) -> String {
        let cores = self.cores.get(name).copied().unwrap_or_default();
        let render = self.renders.get(name).copied();
        let booked = render.map_or(0, |(_, cores)| cores).min(cores);
        let harvested = self.running.get(name).copied().unwrap_or_default().min(cores - booked);
        let mut line = String::new();
        for core in 0..cores {
            line.push_str(match core {
                _ if core < booked => RENDER_CELL,
                _ if core < booked + harvested => HARVEST_CELL,
                _ => FREE_CELL,
            });
        }
        line.push(' ');
        if let Some((frame, cores)) = render {
            line.push_str(&format!(" frame {frame} on {}", cores_in_words(cores)));
        }
        if harvested > 0 {
            let and = if render.is_some() { "," } else { "" };
            line.push_str(&format!("{and} {} harvested", cores_in_words(harvested)));
        }
        line
    }

    fn counters(&self) -> String {
        let (done, all) = self.frames;
        let mut text = format!("{done}/{all} frames");
        if self.workunits > 0 {
            text.push_str(&format!(" · {} workunits", self.workunits));
            text.push_str(&format!(" · {} positions right, {} wrong", self.correct, self.wrong));
        }
        if !self.releases_ms.is_empty() {
            let most = self.releases_ms.iter().copied().fold(0.0, f64::max);
            let count = self.releases_ms.len();
            text.push_str(&format!(" · {count} releases ≤ {most:.1} ms"));
        }
        text
    }
}

impl Canvas {
    fn new(length: Span) -> Self {
        let all = MultiProgress::new();
        let style = |template: &str| {
            ProgressStyle::with_template(template)
                .expect("the template is right")
                .progress_chars("█▉▊▋▌▍▎▏ ")
        };
        let add = |length: u64, template: &str| {
            all.add(ProgressBar::new(length).with_style(style(template)))
        };
        let time = add(length.as_millis(), "{bar:30.cyan/dim} {elapsed:>3}  {msg:.bold}");
        time.enable_steady_tick(TICK);
        let names = ["farm1", "farm2", "farm3", "desk1", "desk2", "desk3"];
        let hosts = names.into_iter().map(|name| {
            let bar = add(1, "  {prefix:.bold}  {wide_msg}");
            bar.set_prefix(name);
            (name.to_owned(), bar)
        });
        let hosts = hosts.collect();
        let job = "  {prefix:27} {bar:20.magenta/dim} {msg}";
        let jobs = (0..JOB_LINES).map(|_| add(1, job)).collect();
        let counters = add(1, "{wide_msg}");
        Self { all, time, hosts, jobs, counters }
    }
}

fn cores_in_words(cores: u32) -> String {
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

/// A number in groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_readable() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1 000"), (119_060_324, "119 060 324")]
        {
            assert_eq!(grouped(number), text);
        }
    }
}
