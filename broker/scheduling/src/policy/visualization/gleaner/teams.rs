//! Nodes in teams: the chunks of a dataset are spread over one team.
//!
//! Datasets with the same number of chunks have the same teams, so the chunks of one dataset are
//! used, and dropped, together, and a load holds up the frames of one team only.

use std::collections::BTreeMap;

/// Nodes that keep datasets together.
#[derive(Debug)]
pub(super) struct Team {
    pub(super) nodes: Vec<usize>,
    /// How many of them are busy.
    pub(super) busy: usize,
}

/// All teams, by the number of chunks that a dataset has.
///
/// # Invariants
/// - Each node that is up is in a team of each size.
/// - A team's busy nodes are counted.
#[derive(Debug, Default)]
pub(super) struct Teams {
    up: Vec<usize>,
    by_size: BTreeMap<u32, Vec<Team>>,
}

impl Teams {
    /// Forms them anew of these nodes.
    pub(super) fn form(&mut self, up: Vec<usize>) {
        self.up = up;
        self.by_size.clear();
    }

    /// The nodes that are up.
    pub(super) fn up(&self) -> &[usize] {
        &self.up
    }

    /// The teams for datasets of so many chunks.
    pub(super) fn of(&mut self, chunks: u32, is_busy: impl Fn(usize) -> bool) -> &[Team] {
        let up = &self.up;
        self.by_size.entry(chunks).or_insert_with(|| {
            let size = (chunks as usize).clamp(1, up.len().max(1));
            // The last team shares nodes with the one before where they do not come out even.
            let firsts = (0..up.len()).step_by(size).map(|first| first.min(up.len() - size));
            let teams = firsts.map(|first| up[first..first + size].to_vec());
            let busy = |nodes: &[usize]| nodes.iter().filter(|node| is_busy(**node)).count();
            teams.map(|nodes| Team { busy: busy(&nodes), nodes }).collect()
        })
    }

    /// A node came to be busy, or idle. Whether a team is idle by that.
    pub(super) fn turn(&mut self, node: usize, is_busy: bool) -> bool {
        let mut came_idle = false;
        for team in self.by_size.values_mut().flatten() {
            if team.nodes.contains(&node) {
                team.busy = if is_busy { team.busy + 1 } else { team.busy - 1 };
                came_idle |= team.busy == 0;
            }
        }
        came_idle
    }

    /// Whether some team is idle.
    pub(super) fn any_idle(&self) -> bool {
        self.by_size.values().flatten().any(|team| team.busy == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(teams: &[Team]) -> Vec<Vec<usize>> {
        teams.iter().map(|team| team.nodes.clone()).collect()
    }

    #[test]
    fn teams_cover_all_nodes_and_count_the_busy_ones() {
        let mut teams = Teams::default();
        teams.form(vec![0, 1, 2, 4, 5]);
        assert_eq!(nodes(teams.of(2, |_| false)), [vec![0, 1], vec![2, 4], vec![4, 5]]);
        assert_eq!(nodes(teams.of(9, |node| node == 1)), [vec![0, 1, 2, 4, 5]]);
        assert!(!teams.turn(4, true));
        let busy: Vec<_> = teams.of(2, |_| false).iter().map(|team| team.busy).collect();
        assert_eq!(busy, [0, 1, 1]);
        assert_eq!(teams.of(9, |_| false)[0].busy, 2);
        assert!(teams.any_idle());
        teams.form(Vec::new());
        assert!(teams.of(3, |_| false).is_empty() && !teams.any_idle());
    }
}
