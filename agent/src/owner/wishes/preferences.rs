//! What an owner can wish, as it stands in the configuration.

use std::path::PathBuf;

use gleaner_protocol::Hours;
use gleaner_protocol::farm::Booked;
use gleaner_protocol::limits::MEMORY_MIB_MAX;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{
    COMM_BYTES, GPU_BESIDE_MAX, GPU_NAME_BYTES_MAX, GPU_RESERVE_MIB, GPU_SURFACE_MIB_MIN,
    PAUSING_PROGRAMS_MAX, PROGRAM_NAME_BYTES_MAX, USER_AWAY_MIN_MAX, WEEK_SPANS_MAX,
};

/// The owner's wishes. Where nothing is said, an idle host may be used at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Preferences {
    /// Hours of the week, in local time; empty for all.
    pub hours: Vec<String>,
    /// For how many minutes nobody may have used keyboard or mouse; 0 for any.
    pub user_away_min: u32,
    /// Whether also on battery.
    pub on_battery: bool,
    /// Temperature above which nothing runs, in degrees Celsius; 0 for any.
    pub temperature_c_max: u32,
    /// Memory that all replicas may take together, in MiB; 0 for any.
    pub memory_mib_max: u64,
    /// Disk space that the work folder may take, in MiB; 0 for any.
    pub disk_mib_max: u64,
    /// Inputs and outputs that may be carried in a day, in MiB; 0 for any.
    pub network_mib_per_day: u64,
    /// Programs that pause everything while they run, by their names in `ps`.
    pub pause_for: Vec<String>,
    /// When the GPU may be used.
    pub gpus: Gpus,
    /// A part of the name of the one that may be; the strongest kind that there is where not given.
    pub gpu_name: Option<String>,
    /// Its free memory that stays free for others, in MiB.
    pub gpu_reserve_mib: u64,
    /// What the file of a volume has at least whose surface is cut there, in MiB.
    pub gpu_surface_mib_min: u64,
    /// Programs that may have it open meanwhile, by their names in `ps`.
    pub gpu_beside: Vec<String>,
    /// NVIDIA's library that tells who else has it open; where the system has it if not given.
    pub nvml_library: Option<PathBuf>,
    /// Whether to give way to whatever runs unannounced.
    pub give_way: bool,
    /// How long a replica that is in the way is kept frozen before it is ended, in seconds.
    pub keep_frozen_s: u64,
}

/// What shows a desktop: some of these have its GPU open at all times.
const DESKTOPS: [&str; 16] = [
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "mutter-x11-frames",
    "kwin_x11",
    "kwin_wayland",
    "plasmashell",
    "cinnamon",
    "xfwm4",
    "marco",
    "picom",
    "sway",
    "Hyprland",
    "weston",
    "labwc",
    "cosmic-comp",
];

/// When GPUs may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gpus {
    /// Never.
    #[default]
    Never,
    /// While no render may use them, and nobody else does.
    Idle,
    /// While no render has booked one, beside others.
    Always,
}

impl Gpus {
    /// Whether they may be used beside a render that has booked this.
    pub(crate) fn holds_beside(self, booked: &Booked) -> bool {
        match self {
            Self::Never => false,
            Self::Idle => booked.gpus == Some(0),
            Self::Always => booked.gpus.unwrap_or(0) == 0,
        }
    }
}

impl Default for Preferences {
    fn default() -> Self {
        Self {
            hours: Vec::new(),
            user_away_min: 0,
            on_battery: false,
            temperature_c_max: 0,
            memory_mib_max: 0,
            disk_mib_max: 0,
            network_mib_per_day: 0,
            pause_for: Vec::new(),
            gpus: Gpus::Never,
            gpu_name: None,
            gpu_reserve_mib: GPU_RESERVE_MIB,
            gpu_surface_mib_min: GPU_SURFACE_MIB_MIN,
            gpu_beside: DESKTOPS.map(str::to_owned).to_vec(),
            nvml_library: None,
            give_way: true,
            keep_frozen_s: 30,
        }
    }
}

impl Preferences {
    /// Checks every value.
    ///
    /// # Errors
    /// The first that cannot be used, with what is expected.
    pub fn check(&self) -> Result<(), PreferenceError> {
        let Self { user_away_min, temperature_c_max, keep_frozen_s, .. } = self;
        let Self { gpu_reserve_mib, gpu_surface_mib_min, .. } = self;
        for (key, value, max) in [
            ("user_away_min", u64::from(*user_away_min), u64::from(USER_AWAY_MIN_MAX)),
            ("temperature_c_max", u64::from(*temperature_c_max), 150),
            ("gpu_reserve_mib", *gpu_reserve_mib, u64::from(MEMORY_MIB_MAX)),
            ("gpu_surface_mib_min", *gpu_surface_mib_min, u64::from(MEMORY_MIB_MAX)),
            ("keep_frozen_s", *keep_frozen_s, 86_400),
        ] {
            if value > max {
                let expected = format!("a number from 0 to {max}");
                return Err(PreferenceError { key, value: value.to_string(), expected });
            }
        }
        if self.hours.len() > WEEK_SPANS_MAX {
            let expected = format!("at most {WEEK_SPANS_MAX} spans");
            let value = format!("a list of {}", self.hours.len());
            return Err(PreferenceError { key: "hours", value, expected });
        }
        for span in &self.hours {
            if let Err(error) = Hours::parse([span.as_str()]) {
                let (value, expected) = (format!("{span:?}"), error.to_string());
                return Err(PreferenceError { key: "hours", value, expected });
            }
        }
        if let Some(name) = &self.gpu_name
            && (name.trim().is_empty() || name.len() > GPU_NAME_BYTES_MAX)
        {
            let expected = format!("a part of a GPU's name, 1 to {GPU_NAME_BYTES_MAX} bytes");
            return Err(PreferenceError { key: "gpu_name", value: format!("{name:?}"), expected });
        }
        if let Some(library) = self.nvml_library.as_ref().filter(|path| !path.is_absolute()) {
            let value = format!("{:?}", library.display());
            let expected = "a whole path, as /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1".into();
            return Err(PreferenceError { key: "nvml_library", value, expected });
        }
        check_programs("pause_for", &self.pause_for, PAUSING_PROGRAMS_MAX)?;
        check_programs("gpu_beside", &self.gpu_beside, GPU_BESIDE_MAX)
    }

    /// The hours, where they are limited.
    pub(super) fn hours(&self) -> Option<Hours> {
        if self.hours.is_empty() {
            return None;
        }
        // What was not checked allows nothing.
        let none = || Hours::parse([]).expect("no span is wrong");
        Some(Hours::parse(self.hours.iter().map(String::as_str)).unwrap_or_else(|_| none()))
    }
}

/// What the kernel keeps of a program's name.
pub(crate) fn cut_to_comm(name: &str) -> &str {
    &name[..name.floor_char_boundary(COMM_BYTES)]
}

/// Checks names of programs.
fn check_programs(key: &'static str, names: &[String], most: usize) -> Result<(), PreferenceError> {
    if names.len() > most {
        let (value, expected) =
            (format!("a list of {}", names.len()), format!("at most {most} names"));
        return Err(PreferenceError { key, value, expected });
    }
    let is_wrong = |name: &&String| {
        name.is_empty() || name.len() > PROGRAM_NAME_BYTES_MAX || name.contains('/')
    };
    match names.iter().find(is_wrong) {
        None => Ok(()),
        Some(name) => Err(PreferenceError {
            key,
            value: format!("{name:?}"),
            expected: format!(
                "the name of a program without its folder, 1 to {PROGRAM_NAME_BYTES_MAX} bytes"
            ),
        }),
    }
}

/// A wish that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("preferences.{key} is {value}: {expected}")]
pub struct PreferenceError {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What is expected there.
    pub expected: String,
}
