//! Whether cores can do by their deadlines what is asked of them, if tasks may be interrupted
//! and moved: a maximum flow from tasks through spans of time to cores.

use std::collections::VecDeque;

/// Equal tasks that are wanted within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// When they can begin, in microseconds.
    pub from_us: u64,
    /// When all of them are to be done, in microseconds.
    pub due_us: u64,
    /// How many; each runs on one core at a time.
    pub tasks: u32,
    /// What each needs of a whole core, in microseconds.
    pub work_us: u64,
}

impl Claim {
    fn total_us(&self) -> u64 {
        self.work_us.saturating_mul(self.tasks.into())
    }
}

/// Claims that cannot be met together: whoever else is dropped, one of them has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overload {
    /// Which, by their places, in order.
    pub claims: Vec<usize>,
}

/// Whether so many equal cores can meet all claims. Exact: there is a schedule, with tasks that
/// are interrupted and moved at no cost, exactly where this says so.
///
/// Equal tasks of one claim need no places of their own in the network: what the claim gets in a
/// span can be dealt out evenly.
///
/// # Errors
/// Claims of which one has to go.
///
/// Source: W. A. Horn, "Some Simple Scheduling Algorithms", 1974.
pub fn fits(cores: u32, claims: &[Claim]) -> Result<(), Overload> {
    let mut ends: Vec<u64> =
        claims.iter().flat_map(|claim| [claim.from_us, claim.due_us]).collect();
    ends.sort_unstable();
    ends.dedup();
    let spans: Vec<(u64, u64)> = ends.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut network = Network::new(cores, claims, &spans);
    for claim in 0..claims.len() {
        network.fill(claim);
        while network.left[claim] > 0 {
            if !network.augment(claim) {
                return Err(Overload { claims: network.reached_claims() });
            }
        }
    }
    Ok(())
}

/// Flow from claims to spans. A claim reaches a span inside its window, with as much as its tasks
/// can do in it; a span takes what all cores can do in it.
struct Network {
    spans: usize,
    /// What may still go from claim to span, and what goes.
    room: Vec<u64>,
    flow: Vec<u64>,
    /// What claims still want.
    left: Vec<u64>,
    /// What spans can still take.
    free: Vec<u64>,
    /// How the search came to a span: from which claim; and to a claim: from which span.
    span_from: Vec<Option<usize>>,
    claim_from: Vec<Option<usize>>,
    reached: Vec<bool>,
}

impl Network {
    fn new(cores: u32, claims: &[Claim], spans: &[(u64, u64)]) -> Self {
        let mut room = Vec::with_capacity(claims.len() * spans.len());
        for claim in claims {
            room.extend(spans.iter().map(|(from, until)| {
                let inside = claim.from_us <= *from && *until <= claim.due_us;
                if inside { (until - from).saturating_mul(claim.tasks.into()) } else { 0 }
            }));
        }
        Self {
            spans: spans.len(),
            flow: vec![0; room.len()],
            room,
            left: claims.iter().map(Claim::total_us).collect(),
            free: spans.iter().map(|(from, to)| (to - from).saturating_mul(cores.into())).collect(),
            span_from: vec![None; spans.len()],
            claim_from: vec![None; claims.len()],
            reached: vec![false; claims.len()],
        }
    }

    /// Sends what needs no detour.
    fn fill(&mut self, claim: usize) {
        for span in 0..self.spans {
            let at = claim * self.spans + span;
            let more = self.left[claim].min(self.room[at]).min(self.free[span]);
            self.left[claim] -= more;
            self.room[at] -= more;
            self.flow[at] += more;
            self.free[span] -= more;
        }
    }

    /// Finds a way, over claims that can go elsewhere, to a span that has something left, and
    /// sends along it what it takes. `false` where there is none.
    fn augment(&mut self, claim: usize) -> bool {
        self.span_from.fill(None);
        self.claim_from.fill(None);
        self.reached.fill(false);
        self.reached[claim] = true;
        let mut queue = VecDeque::from([claim]);
        while let Some(at) = queue.pop_front() {
            for span in 0..self.spans {
                if self.span_from[span].is_some() || self.room[at * self.spans + span] == 0 {
                    continue;
                }
                self.span_from[span] = Some(at);
                if self.free[span] > 0 {
                    self.send(claim, span);
                    return true;
                }
                for other in 0..self.left.len() {
                    if !self.reached[other] && self.flow[other * self.spans + span] > 0 {
                        self.reached[other] = true;
                        self.claim_from[other] = Some(span);
                        queue.push_back(other);
                    }
                }
            }
        }
        false
    }

    fn send(&mut self, claim: usize, last: usize) {
        let steps = |network: &Self| {
            let mut steps = Vec::new();
            let mut span = last;
            loop {
                let from = network.span_from[span].expect("the search came over a claim");
                let came = network.claim_from[from];
                steps.push((from, span, came));
                match came {
                    Some(earlier) => span = earlier,
                    None => return steps,
                }
            }
        };
        let steps = steps(self);
        let mut most = self.left[claim].min(self.free[last]);
        for (from, span, came) in &steps {
            most = most.min(self.room[from * self.spans + span]);
            if let Some(earlier) = came {
                most = most.min(self.flow[from * self.spans + earlier]);
            }
        }
        for (from, span, came) in steps {
            self.room[from * self.spans + span] -= most;
            self.flow[from * self.spans + span] += most;
            if let Some(earlier) = came {
                self.room[from * self.spans + earlier] += most;
                self.flow[from * self.spans + earlier] -= most;
            }
        }
        self.left[claim] -= most;
        self.free[last] -= most;
    }

    fn reached_claims(&self) -> Vec<usize> {
        (0..self.reached.len()).filter(|claim| self.reached[*claim]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(from_us: u64, due_us: u64, tasks: u32, work_us: u64) -> Claim {
        Claim { from_us, due_us, tasks, work_us }
    }

    #[test]
    fn three_tasks_share_two_cores_by_moving() {
        assert_eq!(fits(2, &[claim(0, 3, 3, 2)]), Ok(()));
        assert_eq!(
            fits(2, &[claim(0, 3, 3, 2), claim(0, 3, 1, 1)]),
            Err(Overload { claims: vec![0, 1] })
        );
    }

    #[test]
    fn a_task_runs_on_one_core_at_a_time() {
        assert_eq!(fits(8, &[claim(0, 10, 1, 11)]), Err(Overload { claims: vec![0] }));
    }

    #[test]
    fn an_early_claim_makes_room_for_a_tight_one() {
        assert_eq!(fits(1, &[claim(0, 20, 1, 10), claim(0, 10, 1, 10)]), Ok(()));
    }

    #[test]
    fn who_is_not_in_the_way_is_not_named() {
        let claims = [claim(0, 10, 1, 8), claim(20, 30, 1, 8), claim(22, 30, 1, 8)];
        assert_eq!(fits(1, &claims), Err(Overload { claims: vec![1, 2] }));
    }

    #[test]
    fn the_last_claim_may_be_the_one_that_has_to_wait() {
        // Only a chain of moves over both others makes room.
        let claims = [claim(0, 30, 1, 10), claim(0, 20, 1, 10), claim(0, 10, 1, 10)];
        assert_eq!(fits(1, &claims), Ok(()));
        assert_eq!(
            fits(1, &[claims[0], claims[1], claim(0, 10, 1, 9), claim(0, 30, 1, 1)]),
            Ok(())
        );
        assert!(fits(1, &[claims[0], claims[1], claims[2], claim(0, 30, 1, 1)]).is_err());
    }
}
