//! What happened in a storm without a breach.

use gleaner_protocol::Time;

use crate::catalogue::MetricPage;

/// The report with these counts, so that each is named once.
macro_rules! report {
    ($($(#[doc = $about:literal])+ $name:ident),* $(,)?) => {
        /// Counts over one storm, or several.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct StormReport {
            /// When the last workunit ended.
            pub ended_at: Time,
            $($(#[doc = $about])+ pub $name: u64,)*
        }

        /// What is counted, in order, with what it is.
        const COUNTS: &[(&str, &str)] = &[$((stringify!($name), concat!($($about),+)),)*];

        impl StormReport {
            /// All counts by name, in order.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Adds another storm's counts. The latest end is kept.
            pub fn add(&mut self, other: &Self) {
                self.ended_at = self.ended_at.max(other.ended_at);
                $(self.$name += other.$name;)*
            }
        }
    };
}

report! {
    /// Events.
    events,
    /// Jobs acknowledged to their submitters.
    jobs_accepted,
    /// Of these, cancelled.
    jobs_cancelled,
    /// Jobs with a due time that were declined; others came in their place.
    jobs_declined,
    /// Workunits decided.
    decided,
    /// Workunits given up.
    given_up,
    /// Decided workunits whose canonical output is not the right one. One faulty host decides
    /// where one vote does.
    wrong,
    /// Leases given.
    leases,
    /// Leases that a broker adopted, which had restarted or had lost the host.
    adopted,
    /// Reports acknowledged as counted.
    counted,
    /// Reports acknowledged as anything else.
    refused,
    /// Of these, failures of what went on from where another had saved.
    spoiled,
    /// Attempts that failed.
    attempts_failed,
    /// Attempts whose leases ran out.
    attempts_timed_out,
    /// Attempts that were lost with their hosts.
    attempts_lost,
    /// Turns of the broker after which a host backed off from what it had failed or refused.
    back_offs,
    /// Replicas that a render drove out.
    preempted,
    /// Replicas that were parked for a lane before their own.
    parked,
    /// Parked replicas that were told to go on.
    resumed,
    /// Replicas that went on from where another had saved.
    gone_on,
    /// Datasets that were removed.
    datasets_removed,
    /// Copies of chunks that came to hosts.
    copies_made,
    /// Copies that did not come.
    copies_failed,
    /// Copies that made room for others, or were of datasets that were removed.
    copies_dropped,
    /// Replicas that read a chunk of which their host had a copy.
    read_here,
    /// Replicas whose host had lost its copy when they came, or found it damaged.
    read_elsewhere,
    /// Frames that were sent to viewers.
    frames_drawn,
    /// Of these, coarse ones.
    frames_coarse,
    /// Of these, those that several hosts joined a strip of each.
    frames_in_strips,
    /// Frames whose layers were all there.
    frames_joined,
    /// Frames that were not sent, for a newer one was.
    frames_late,
    /// Frames that were dropped before a host began them, for a newer one was sent.
    frames_stale,
    /// Frames that failed or were refused, and were drawn anew where they were still wanted.
    frames_given_up,
    /// Parts of frames that were lost with their hosts' agents.
    frames_lost_with_host,
    /// Frames that were being drawn when the broker died.
    frames_lost_with_broker,
    /// Layers that their hosts kept for whoever joined them.
    layers_kept,
    /// Layers that were brought to the broker.
    layers_brought,
    /// Renders.
    renders,
    /// Openings that agents refused, for a render had come since.
    openings_refused,
    /// Links that broke.
    links_broken,
    /// Times the broker died.
    broker_deaths,
    /// Of these, amid writing.
    deaths_amid_writing,
    /// Commits that were on their way to the disk when the broker died, and were lost.
    commits_lost,
    /// Commits of which only a part was on the disk.
    commits_torn,
    /// Snapshots that took the journal's place.
    snapshots,
    /// Times the broker's disk was full.
    disks_full,
    /// Times the monitor died.
    monitor_deaths,
    /// Times an agent died.
    agent_deaths,
    /// Times an agent was stopped, and went on later.
    agents_stopped,
    /// Hosts that lost their power.
    reboots,
    /// Partitions, in one direction or both.
    partitions,
    /// Clocks that jumped.
    clock_jumps,
    /// Hooks that were killed half-way.
    hooks_killed,
    /// Run folders that could not be written for a while.
    folders_full,
    /// Messages lost.
    messages_lost,
    /// Messages that came twice.
    messages_doubled,
    /// Steps of writing that the broker took.
    writes,
}

/// What is counted, as metrics of a scenario.
pub(super) fn metrics() -> Vec<MetricPage> {
    let page = |&(name, about): &(&'static str, &'static str)| MetricPage {
        name,
        unit: None,
        better: "neither",
        about: about.trim(),
    };
    COUNTS.iter().map(page).collect()
}
