//! Views in a storm: people open them, turn them and go without a word, renders take hosts and give them back,
//! and the broker is killed and starts again. In the end everybody sees what they wanted last, and never
//! something older after something newer: [`Viewer`] looks at that for each frame.

use gleaner_protocol::{ViewKernel, ViewState, ViewStatus};

use crate::cluster::Cluster;
use crate::view_frames::{LISTENS, Viewer, cluster_with, open, state};

const HOSTS: [&str; 3] = ["desk1", "desk2", "desk3"];
/// What draws the view of each: bricks, as many bricks that take no time, and nothing.
const KERNELS: [ViewKernel; 3] = [
    ViewKernel::Volume,
    ViewKernel::Paced { load_us: 2_000, render_us: 500 },
    ViewKernel::Synthetic,
];
const STEPS: usize = 40;
/// How often the broker dies at most.
const DEATHS_MAX: usize = 2;

/// Somebody with a view, at it or not.
struct Session {
    view: ViewStatus,
    viewer: Option<Viewer>,
    seq: u64,
}

impl Session {
    /// What is wanted next.
    fn next(&mut self, moving: bool) -> ViewState {
        self.seq += 1;
        ViewState { moving, ..state(self.seq, 0.02 * self.seq as f64) }
    }
}

/// Chance from a seed.
///
/// Source: G. L. Steele, D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

#[tokio::test]
async fn everybody_sees_what_they_wanted_last_whatever_happens() {
    for seed in 1..=2 {
        storm(seed).await;
    }
}

async fn storm(seed: u64) {
    eprintln!("seed {seed}");
    let mut cluster = cluster_with(HOSTS.len(), &LISTENS).await;
    let (mut dice, mut sessions) = (Dice(seed), Vec::new());
    for kernel in KERNELS {
        let view = open(&cluster, "bricks", kernel).await;
        sessions.push(Session { view, viewer: None, seq: 0 });
    }
    let (mut taken, mut deaths) = ([false; HOSTS.len()], 0);
    for step in 0..STEPS {
        let session = &mut sessions[dice.below(KERNELS.len())];
        let host = dice.below(HOSTS.len());
        let act = dice.below(12);
        eprintln!("seed {seed}, step {step}: {act} by {} on {}", session.view.view, HOSTS[host]);
        match act {
            0..=4 => {
                let wanted = session.next(dice.below(3) > 0);
                if let Some(viewer) = &mut session.viewer {
                    viewer.wants(&wanted).await;
                }
            }
            5 => {
                let wanted = session.next(true);
                if let Some(viewer) = &mut session.viewer {
                    viewer.wants(&wanted).await;
                    viewer.frame(wanted.seq, |_| true).await;
                }
            }
            // Without a word, and perhaps while somebody else is at it.
            6 => session.viewer = None,
            7 | 8 => session.viewer = Some(Viewer::of(&cluster, &session.view).await),
            // One stays.
            9 if !taken[host] && taken.iter().filter(|taken| **taken).count() + 1 < HOSTS.len() => {
                cluster[HOSTS[host]].preflight("shot:1").run();
                taken[host] = true;
            }
            10 if taken[host] => give_back(&cluster, &mut taken, host),
            11 if deaths < DEATHS_MAX => {
                deaths += 1;
                cluster.broker.kill();
                cluster.restart_broker();
                sessions.iter_mut().for_each(|session| session.viewer = None);
                cluster.are_connected().await;
            }
            _ => {}
        }
    }
    for host in 0..HOSTS.len() {
        if taken[host] {
            give_back(&cluster, &mut taken, host);
        }
    }
    for session in &mut sessions {
        let wanted = session.next(false);
        let viewer = match &mut session.viewer {
            Some(viewer) => viewer,
            none => none.insert(Viewer::of(&cluster, &session.view).await),
        };
        viewer.wants(&wanted).await;
    }
    for session in &mut sessions {
        let viewer = session.viewer.as_mut().expect("somebody is at it");
        viewer.frame(session.seq, |header| !header.coarse).await;
    }
}

fn give_back(cluster: &Cluster, taken: &mut [bool], host: usize) {
    cluster[HOSTS[host]].postflight("shot:1").run();
    taken[host] = false;
}
