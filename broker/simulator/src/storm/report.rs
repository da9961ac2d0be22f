//! What happened in a storm without a breach.

use gleaner_protocol::Time;

/// Counts over one storm, or several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StormReport {
    /// Events.
    pub events: u64,
    /// When the last workunit ended.
    pub ended_at: Time,
    /// Jobs acknowledged to their submitters.
    pub jobs_accepted: u64,
    /// Of these, cancelled.
    pub jobs_cancelled: u64,
    /// Workunits decided.
    pub decided: u64,
    /// Workunits given up.
    pub given_up: u64,
    /// Decided workunits whose canonical output is not the right one. One faulty host decides
    /// where one vote does.
    pub wrong: u64,
    /// Leases given.
    pub leases: u64,
    /// Leases that a broker adopted, which had restarted or had lost the host.
    pub adopted: u64,
    /// Reports acknowledged as counted.
    pub counted: u64,
    /// Reports acknowledged as anything else.
    pub refused: u64,
    /// Replicas that a render drove out.
    pub preempted: u64,
    /// Renders.
    pub renders: u64,
    /// Openings that agents refused, for a render had come since.
    pub openings_refused: u64,
    /// Links that broke.
    pub links_broken: u64,
    /// Times the broker died.
    pub broker_deaths: u64,
    /// Of these, amid writing.
    pub deaths_amid_writing: u64,
    /// Commits that were on their way to the disk when the broker died, and were lost.
    pub commits_lost: u64,
    /// Commits of which only a part was on the disk.
    pub commits_torn: u64,
    /// Snapshots that took the journal's place.
    pub snapshots: u64,
    /// Times the broker's disk was full.
    pub disks_full: u64,
    /// Times the monitor died.
    pub monitor_deaths: u64,
    /// Times an agent died.
    pub agent_deaths: u64,
    /// Times an agent was stopped, and went on later.
    pub agents_stopped: u64,
    /// Hosts that lost their power.
    pub reboots: u64,
    /// Partitions, in one direction or both.
    pub partitions: u64,
    /// Clocks that jumped.
    pub clock_jumps: u64,
    /// Hooks that were killed half-way.
    pub hooks_killed: u64,
    /// Run folders that could not be written for a while.
    pub folders_full: u64,
    /// Messages lost.
    pub messages_lost: u64,
    /// Messages that came twice.
    pub messages_doubled: u64,
    /// Steps of writing that the broker took.
    pub writes: u64,
}

impl StormReport {
    /// All counts by name, in the order above.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 31] {
        [
            ("events", self.events),
            ("jobs_accepted", self.jobs_accepted),
            ("jobs_cancelled", self.jobs_cancelled),
            ("decided", self.decided),
            ("given_up", self.given_up),
            ("wrong", self.wrong),
            ("leases", self.leases),
            ("adopted", self.adopted),
            ("counted", self.counted),
            ("refused", self.refused),
            ("preempted", self.preempted),
            ("renders", self.renders),
            ("openings_refused", self.openings_refused),
            ("links_broken", self.links_broken),
            ("broker_deaths", self.broker_deaths),
            ("deaths_amid_writing", self.deaths_amid_writing),
            ("commits_lost", self.commits_lost),
            ("commits_torn", self.commits_torn),
            ("snapshots", self.snapshots),
            ("disks_full", self.disks_full),
            ("monitor_deaths", self.monitor_deaths),
            ("agent_deaths", self.agent_deaths),
            ("agents_stopped", self.agents_stopped),
            ("reboots", self.reboots),
            ("partitions", self.partitions),
            ("clock_jumps", self.clock_jumps),
            ("hooks_killed", self.hooks_killed),
            ("folders_full", self.folders_full),
            ("messages_lost", self.messages_lost),
            ("messages_doubled", self.messages_doubled),
            ("writes", self.writes),
        ]
    }

    /// Adds another storm's counts. The latest end is kept.
    pub fn add(&mut self, other: &Self) {
        let Self {
            events,
            ended_at,
            jobs_accepted,
            jobs_cancelled,
            decided,
            given_up,
            wrong,
            leases,
            adopted,
            counted,
            refused,
            preempted,
            renders,
            openings_refused,
            links_broken,
            broker_deaths,
            deaths_amid_writing,
            commits_lost,
            commits_torn,
            snapshots,
            disks_full,
            monitor_deaths,
            agent_deaths,
            agents_stopped,
            reboots,
            partitions,
            clock_jumps,
            hooks_killed,
            folders_full,
            messages_lost,
            messages_doubled,
            writes,
        } = other;
        self.ended_at = self.ended_at.max(*ended_at);
        self.events += events;
        self.jobs_accepted += jobs_accepted;
        self.jobs_cancelled += jobs_cancelled;
        self.decided += decided;
        self.given_up += given_up;
        self.wrong += wrong;
        self.leases += leases;
        self.adopted += adopted;
        self.counted += counted;
        self.refused += refused;
        self.preempted += preempted;
        self.renders += renders;
        self.openings_refused += openings_refused;
        self.links_broken += links_broken;
        self.broker_deaths += broker_deaths;
        self.deaths_amid_writing += deaths_amid_writing;
        self.commits_lost += commits_lost;
        self.commits_torn += commits_torn;
        self.snapshots += snapshots;
        self.disks_full += disks_full;
        self.monitor_deaths += monitor_deaths;
        self.agent_deaths += agent_deaths;
        self.agents_stopped += agents_stopped;
        self.reboots += reboots;
        self.partitions += partitions;
        self.clock_jumps += clock_jumps;
        self.hooks_killed += hooks_killed;
        self.folders_full += folders_full;
        self.messages_lost += messages_lost;
        self.messages_doubled += messages_doubled;
        self.writes += writes;
    }
}
