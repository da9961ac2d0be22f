//! What a host looks like at one moment, as far as its owner's wishes ask.

use gleaner_protocol::Span;

use super::LocalTime;

/// For how long nobody has used the machine, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserIdle {
    /// For so long.
    pub(crate) span: Span,
    /// The desktop itself says that it is in use, to the login manager: `IdleHint` is "no".
    pub(crate) desktop_is_in_use: bool,
}

impl UserIdle {
    /// By when a terminal was read last.
    pub(crate) const fn terminals(span: Span) -> Self {
        Self { span, desktop_is_in_use: false }
    }
}

/// A look at the host. What no wish asks for is not looked at, and left as it is by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observation {
    /// What a clock on the wall shows.
    pub(crate) local: LocalTime,
    /// For how long nobody has used a keyboard or a mouse. Why not, where that cannot be told.
    pub(crate) user_idle: Result<UserIdle, String>,
    /// The supplies that show that the machine runs on its battery, in words; none where it does
    /// not.
    pub(crate) on_battery: Option<String>,
    /// The hottest sensor, in degrees Celsius; None where there is none.
    pub(crate) temperature_c: Option<i32>,
    /// One that runs of the programs that pause everything.
    pub(crate) program: Option<String>,
    /// Cores that others keep busy beyond what renders have booked, in thousandths.
    pub(crate) others_millicores: u32,
    /// Whether that is much more than at the last look.
    pub(crate) others_rise: bool,
    /// Cores that renders take by what they have booked.
    pub(crate) taken_cores: u32,
    /// For how much of the last second somebody waited for memory, in thousandths.
    pub(crate) memory_stall_permille: u32,
    /// For how much of it somebody else than harvested work waited for a disk, in thousandths.
    pub(crate) io_stall_permille: u32,
    /// Memory that a new program could have, in MiB; None where that cannot be told.
    pub(crate) memory_free_mib: Option<u64>,
    /// Of how much, in MiB.
    pub(crate) memory_mib: u64,
    /// Replicas that run or are kept frozen.
    pub(crate) held: u32,
    /// Memory that they take, in MiB.
    pub(crate) own_memory_mib: u64,
    /// Memory that renders leave them, in MiB; 0 where that is not known.
    pub(crate) memory_mib_max: u64,
    /// Disk space that the work folder takes, in MiB.
    pub(crate) own_disk_mib: u64,
    /// Carried over the network today, in MiB.
    pub(crate) network_mib: u64,
}

impl Default for Observation {
    fn default() -> Self {
        Self {
            local: LocalTime { weekday: 0, minute: 0 },
            user_idle: Ok(UserIdle::terminals(Span::ZERO)),
            on_battery: None,
            temperature_c: None,
            program: None,
            others_millicores: 0,
            others_rise: false,
            taken_cores: 0,
            memory_stall_permille: 0,
            io_stall_permille: 0,
            memory_free_mib: None,
            memory_mib: 0,
            held: 0,
            own_memory_mib: 0,
            memory_mib_max: 0,
            own_disk_mib: 0,
            network_mib: 0,
        }
    }
}
