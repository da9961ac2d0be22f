//! The servers of one run: speeds, loads, paths and copies, the same for every policy.

use gleaner_protocol::{Span, Time};

use super::load::{Day, SAMPLE_S, SAMPLES, synthetic_day};
use super::placement::place;
use crate::dice::Dice;

/// What the servers are drawn from.
#[derive(Debug, Clone)]
pub(crate) struct Draw {
    pub(crate) servers: usize,
    pub(crate) chunks: usize,
    pub(crate) copies: usize,
    /// Mean speed of an ordinary server, as a part of the reference processor's.
    pub(crate) speed: f64,
    pub(crate) speed_sigma: f64,
    /// Part of the servers that is overloaded.
    pub(crate) overloaded: f64,
    /// What is left of the speed of those.
    pub(crate) overloaded_speed: f64,
    /// What a time-shared server leaves one more process however busy it is.
    pub(crate) least_share: f64,
    /// Between two servers, in MB/s.
    pub(crate) server_mb_s: f64,
    pub(crate) server_sigma: f64,
    /// From a server to the client, in MB/s.
    pub(crate) client_mb_s: f64,
    pub(crate) client_sigma: f64,
    /// Recorded loads; made up where there are none.
    pub(crate) trace: Option<Vec<Day>>,
}

/// One server.
#[derive(Debug)]
pub(super) struct Server {
    /// Speed without anyone else's load, as a part of the reference processor's.
    pub(super) speed: f64,
    pub(super) load: Day,
    /// To the client, in MB/s.
    pub(crate) client_mb_s: f64,
}

/// All servers and what lies on them.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(super) list: Vec<Server>,
    /// Path between two servers in MB/s, by the sender and the receiver.
    pub(super) paths: Vec<f64>,
    /// Servers that have a copy of each chunk at first.
    pub(crate) copies: Vec<Vec<usize>>,
    /// Time of the day at which the run begins, in seconds.
    pub(super) day_s: f64,
    pub(super) least_share: f64,
}

impl Servers {
    /// Draws them. Each thing has its own dice, so that one more copy leaves the speeds as they
    /// are.
    pub(crate) fn draw(seed: u64, draw: &Draw) -> Self {
        let [mut speeds, mut overloads, mut loads, mut clients, mut paths, mut places, mut hour] =
            [1, 2, 3, 4, 5, 6, 7].map(|purpose| Dice::new(seed, purpose));
        let mut rows: Vec<usize> = (0..draw.trace.as_ref().map_or(0, Vec::len)).collect();
        loads.shuffle(&mut rows);
        // An even share of the servers is overloaded, not by chance more or fewer.
        let slow_count = libm::round(draw.overloaded * draw.servers as f64) as usize;
        let mut slow: Vec<bool> = (0..draw.servers).map(|server| server < slow_count).collect();
        overloads.shuffle(&mut slow);
        let list = slow.into_iter().enumerate();
        let list = list.map(|(number, slow)| Server {
            speed: speeds.log_normal(draw.speed, draw.speed_sigma)
                * if slow { draw.overloaded_speed } else { 1.0 },
            load: match &draw.trace {
                Some(days) => days[rows[number % rows.len()]],
                None => synthetic_day(&mut loads),
            },
            client_mb_s: clients.log_normal(draw.client_mb_s, draw.client_sigma),
        });
        let list = list.collect();
        let count = draw.servers * draw.servers;
        Self {
            list,
            paths: (0..count)
                .map(|_| paths.log_normal(draw.server_mb_s, draw.server_sigma))
                .collect(),
            copies: place(&mut places, draw.servers, draw.chunks, draw.copies),
            day_s: hour.uniform(0.0, SAMPLES as f64 * SAMPLE_S),
            least_share: draw.least_share,
        }
    }

    /// The path from one server to another, in MB/s.
    pub(super) fn path_mb_s(&self, from: usize, to: usize) -> f64 {
        self.paths[from * self.list.len() + to]
    }

    /// When a server that starts now has done work that would take the reference processor
    /// `work_s` seconds.
    pub(super) fn computed(&self, server: usize, start: Time, work_s: f64) -> Time {
        let Server { speed, load, .. } = &self.list[server];
        let begin_s = start.since(Time::ZERO).as_secs_f64();
        let mut at_s = self.day_s + begin_s;
        let mut left_s = work_s / speed;
        loop {
            let sample = libm::floor(at_s / SAMPLE_S);
            let share = (1.0 - load[sample as usize % SAMPLES] / 100.0).max(self.least_share);
            let until_s = (sample + 1.0) * SAMPLE_S;
            let done_s = (until_s - at_s) * share;
            if done_s >= left_s {
                let took_s = at_s + left_s / share - self.day_s - begin_s;
                return start + micros(took_s);
            }
            left_s -= done_s;
            at_s = until_s;
        }
    }

    /// CPU time of that work on the server.
    pub(super) fn cpu(&self, server: usize, work_s: f64) -> Span {
        micros(work_s / self.list[server].speed)
    }

    /// How long a server takes to send its output to the client.
    pub(super) fn sending(&self, server: usize, output_mb: f64) -> Span {
        micros(output_mb / self.list[server].client_mb_s)
    }
}

/// Seconds as a span, at least a microsecond.
pub(super) fn micros(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6).max(1.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(load: Day) -> Servers {
        let list = vec![Server { speed: 0.5, load, client_mb_s: 2.0 }];
        Servers { list, paths: vec![1.0], copies: Vec::new(), day_s: 0.0, least_share: 0.25 }
    }

    #[test]
    fn a_server_computes_with_what_others_leave_it() {
        let mut load = [0.0; SAMPLES];
        load[1] = 50.0;
        load[2] = 100.0;
        let servers = one(load);
        let secs = |seconds| Time::ZERO + Span::from_secs(seconds);
        assert_eq!(servers.computed(0, Time::ZERO, 100.0), secs(200));
        // 100 s alone, then 300 s at half of it, then all but stopped.
        assert_eq!(servers.computed(0, secs(200), 125.0), secs(600));
        assert_eq!(servers.computed(0, secs(200), 130.0), secs(640));
        // The day repeats.
        let next_day = secs(86_400);
        assert_eq!(servers.computed(0, next_day, 100.0), next_day + Span::from_secs(200));
        assert_eq!(servers.sending(0, 0.5), Span::from_millis(250));
    }
}
