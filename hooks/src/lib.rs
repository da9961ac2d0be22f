//! What a farm's hooks do on a render host.
//!
//! A preflight hook frees the host's cores for a render and returns: it raises the epoch in the
//! host's [run folder](RunDir), books the render there, has the agent stop the harvested work
//! over its [Unix socket](ask), and stops that work itself where the agent does not answer.
//! Nothing in it waits for the network, and nothing in it can fail a render.

pub mod install;
pub mod limits;

mod command_line;
mod detached;
mod end_watch;
mod environment;
mod family;
mod farm;
mod file_system;
mod hook;
mod last_run;
mod notify;
mod peer;
mod process_group;
mod process_io;
mod roomy_stack;
mod run_dir;
mod scheduling_class;
mod socket;
mod standing;
mod stop;
mod stop_mark;
mod strays;
mod urgency;
mod worker_name;

pub use command_line::{
    HookArgs, is_hook_alone, run_hook, run_hook_alone, run_hook_if_asked, run_hook_in_spite_of,
};
pub use end_watch::watch_to_exit;
pub use environment::Environment;
pub use farm::{Attempt, Farm, FarmParseError};
pub use file_system::FileSystem;
pub use hook::{HookInvocation, HookReport, run, run_to_exit, say};
pub use notify::{Notification, NotifyError, SecurePost, SecurePoster, notify, notify_to_exit};
pub use peer::Peer;
pub use process_group::{
    ProcessStat, TaskGroup, calm, freeze, freeze_until, has_stopped, kill, stop_stragglers, thaw,
};
pub use process_io::ProcessIo;
pub use run_dir::{BookingChange, BookingRecord, RunDir, RunDirError, StopReport};
pub use scheduling_class::{SchedulingClass, set_scheduling_class};
pub use socket::{
    AskError, LineError, SocketAnswer, SocketRequest, ask, decode_line, encode_line,
    read_line_bounded,
};
pub use standing::{Counted, GpuStanding, Standing, StandingReason, TaskLine, Wish};
pub use stop::{StopOutcome, stop_host, tell_of_stop};
pub use stop_mark::{
    MACHINE_STATE_DIR, PutMarks, STATE_DIR_VARIABLE, STOPPED, StopMark, StopMarkError, Stopped,
};
pub use strays::thaw_strays;
pub use urgency::{Heirs, become_ordinary, become_prompt, become_urgent};
pub use worker_name::{process_name, worker_name_among};
