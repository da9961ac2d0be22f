//! When the demo's farm renders what, and where: the same plan without and with harvest.
//!
//! Each farm host renders a few frames in a row and then stands idle, the hosts in turn, so that
//! the farm as a whole keeps about as much of the machine busy as farms were measured to do.
//! In turn, because the hosts share this machine's cores: real hosts' renders do not compete.
//! Half of the renders book their whole host, the others only the cores that they use.
//!
//! # Invariants
//! - A host's frames are in order of their starts, and do not overlap if each takes as long as
//!   the frame that was measured beforehand.

use gleaner_protocol::Span;

/// Share of a farm's cores that its renders keep busy.
const FARM_SHARE: f64 = 0.46;
/// How long a host renders without a pause.
const BURST: Span = Span::from_millis(1_000);
/// Most cores of a host of the demo.
const HOST_CORES_MAX: u32 = 16;
/// Fewest cores of a host: one to render on, one to harvest.
const HOST_CORES_MIN: u32 = 2;

/// How large the demo's hosts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizing {
    /// Cores of this machine, which all hosts share.
    pub(super) machine_cores: u32,
    /// Cores of each host.
    pub(super) host_cores: u32,
    /// Threads of each render.
    pub(super) render_threads: u32,
}

impl Sizing {
    /// For a machine with so many cores: two renders at a time fill it.
    pub(super) fn of_machine(machine_cores: u32) -> Self {
        let host_cores = machine_cores.clamp(HOST_CORES_MIN, HOST_CORES_MAX);
        Self { machine_cores, host_cores, render_threads: host_cores / 2 }
    }
}

/// A frame that is to be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedFrame {
    pub(super) number: u32,
    /// Which of the farm's hosts.
    pub(super) host: usize,
    /// When, counted from the beginning.
    pub(super) starts: Span,
    /// Cores that it books.
    pub(super) cores: u32,
}

/// All frames of one phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) frames: Vec<PlannedFrame>,
    /// How long the phase takes.
    pub(super) length: Span,
}

impl Plan {
    /// As many frames as fit into `at_most`, but at least one burst per host.
    pub(super) fn new(at_most: Span, hosts: usize, sizing: Sizing, frame: Span) -> Self {
        let frame_s = frame.as_secs_f64().max(0.001);
        let burst = (BURST.as_secs_f64() / frame_s).round().max(1.0);
        let burst_cpu_s = burst * frame_s * f64::from(sizing.render_threads);
        let cores = f64::from(sizing.machine_cores);
        let busy_cycle_s = hosts as f64 * burst_cpu_s / (FARM_SHARE * cores);
        // A host cannot render more than all the time, and must rest to be harvested.
        let cycle_s = busy_cycle_s.max(burst * frame_s * 2.0);
        let cycles = (at_most.as_secs_f64() / cycle_s).floor().max(1.0) as u32;
        let turn_s = cycle_s / hosts as f64;
        let mut frames = Vec::new();
        for cycle in 0..cycles {
            for host in 0..hosts {
                for place in 0..burst as u32 {
                    let starts_s = f64::from(cycle) * cycle_s
                        + host as f64 * turn_s
                        + f64::from(place) * frame_s;
                    let whole = (cycle as usize + host + place as usize) % 2 == 1;
                    frames.push(PlannedFrame {
                        number: u32::try_from(frames.len()).unwrap_or(u32::MAX),
                        host,
                        starts: seconds(starts_s),
                        cores: if whole { sizing.host_cores } else { sizing.render_threads },
                    });
                }
            }
        }
        Self { frames, length: seconds(f64::from(cycles) * cycle_s) }
    }
}

fn seconds(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWENTY: Span = Span::from_secs(20);
    const HALF: Span = Span::from_millis(500);

    #[test]
    fn the_farm_keeps_its_share_of_the_machine_busy() {
        for machine_cores in [1, 2, 4, 16] {
            let sizing = Sizing::of_machine(machine_cores);
            let plan = Plan::new(TWENTY, 3, sizing, HALF);
            let cpu_s = plan.frames.len() as f64 * 0.5 * f64::from(sizing.render_threads);
            let share = cpu_s / (plan.length.as_secs_f64() * f64::from(machine_cores));
            assert!((share - FARM_SHARE).abs() < 0.01, "{machine_cores} cores: {share}");
            assert!(plan.length <= TWENTY);
        }
    }

    #[test]
    fn a_host_renders_one_frame_at_a_time_and_rests_between_bursts() {
        let plan = Plan::new(TWENTY, 3, Sizing::of_machine(2), HALF);
        for host in 0..3 {
            let starts: Vec<Span> =
                plan.frames.iter().filter(|f| f.host == host).map(|f| f.starts).collect();
            let gaps = starts.windows(2).map(|pair| pair[1].as_micros() - pair[0].as_micros());
            let gaps: Vec<u64> = gaps.collect();
            assert!(gaps.iter().all(|gap| *gap + 1 >= HALF.as_micros()), "{gaps:?}");
            assert!(gaps.iter().any(|gap| *gap > 2_000_000), "{gaps:?}");
        }
        let whole = plan.frames.iter().filter(|frame| frame.cores == 2).count();
        assert_eq!(whole * 2, plan.frames.len());
    }

    #[test]
    fn too_little_time_still_gives_every_host_a_render() {
        let plan = Plan::new(Span::from_secs(1), 3, Sizing::of_machine(2), Span::from_secs(2));
        assert_eq!(plan.frames.iter().map(|frame| frame.host).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
