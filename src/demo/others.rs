//! How busy other programs keep this machine while the demo runs: harvest gives way to them.

use std::fs;

use gleaner_protocol::Span;

use super::farm::FarmPhase;

/// Above this share of the machine's cores the demo says that others are at work.
const SHARE_TOLD: f64 = 0.15;

/// CPU time that all programs of this machine together have used since it booted.
pub(super) fn machine_cpu() -> Span {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Span::from_micros(busy_ticks(&text).saturating_mul(1_000_000) / per_second)
}

/// The ticks of `user`, `nice` and `system` of all cores together. Guests are a part of `user`.
fn busy_ticks(stat: &str) -> u64 {
    let fields = stat.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1).take(3);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// What to say of other programs, where they kept a good part of the machine busy while the farm
/// rendered alone: what the demo cannot show then.
pub(super) fn told(without: &FarmPhase, machine_cores: u32, completed: u64) -> Option<String> {
    let rendered: u64 = without.frames.iter().map(|frame| frame.cpu.as_micros()).sum();
    let all = without.length.as_micros().saturating_mul(u64::from(machine_cores)).max(1);
    let others = without.machine_cpu.as_micros().saturating_sub(rendered) as f64 / all as f64;
    (others > SHARE_TOLD || completed == 0).then(|| {
        let percent = (others * 100.0).min(100.0);
        format!(
            "while the farm rendered alone, other programs used {percent:.0} % of this machine's \
             cores. Harvested work gives way to them: it completed {completed} workunits. Run the \
             demo again when the machine is calm, or for longer (--seconds 120)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::farm::FrameRun;

    fn phase(machine_s: u64) -> FarmPhase {
        let cpu = Span::from_secs(4);
        let frame = FrameRun { took: cpu, cpu, release: None, intruders: 0 };
        FarmPhase {
            frames: vec![frame],
            length: Span::from_secs(10),
            machine_cpu: Span::from_secs(machine_s),
        }
    }

    #[test]
    fn others_are_told_of_where_they_keep_the_machine_busy_or_nothing_was_harvested() {
        assert_eq!(told(&phase(6), 2, 9), None, "the demo's own parts take some");
        let said = told(&phase(18), 2, 9).expect("they used 14 of 20 seconds");
        assert!(said.contains("70 %") && said.contains("9 workunits"), "{said}");
        let said = told(&phase(5), 2, 0).expect("nothing was harvested");
        assert!(said.contains("5 %") && said.contains("0 workunits"), "{said}");
    }

    #[test]
    fn idle_time_and_waiting_are_no_work() {
        assert_eq!(busy_ticks("cpu  10 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3"), 60);
        assert_eq!(busy_ticks(""), 0);
        assert!(machine_cpu() > Span::ZERO);
    }
}
