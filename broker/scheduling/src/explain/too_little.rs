//! Memory or a GPU is in the way.

use std::fmt;

use gleaner_protocol::Kept;

use crate::farm::{Host, Takes};

/// What a job takes beside cores, of which hosts that could run it have too little left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLittle {
    /// How many of these hosts there are.
    pub hosts: usize,
    /// Of how many that could run it.
    pub of: usize,
    /// What a workunit of it takes.
    pub asked: Kept,
    /// Most memory and GPUs that one of them has left.
    pub left: Kept,
    /// Most memory and GPUs that one of them gives.
    pub given: Kept,
}

impl TooLittle {
    /// Where it is in the way on some of these hosts, and cores are on all others.
    pub(crate) fn of(takes: Takes, able: &[&Host]) -> Option<Self> {
        let Takes { share, kept } = takes;
        let lacking = || able.iter().filter(|host| !kept.fits(host.kept_left()));
        let hosts = lacking().count();
        let mut others = able.iter().filter(|host| kept.fits(host.kept_left()));
        let most = |of: fn(&Host) -> Kept| {
            let all = lacking().map(|host| of(host));
            all.fold(Kept::NONE, |most, of| Kept {
                memory_mib: most.memory_mib.max(of.memory_mib),
                gpus: most.gpus.max(of.gpus),
            })
        };
        (hosts > 0 && others.all(|host| host.free_share() < share)).then(|| Self {
            hosts,
            of: able.len(),
            asked: kept,
            left: most(Host::kept_left),
            given: most(|host| host.fragment.kept()),
        })
    }
}

impl fmt::Display for TooLittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, of, asked, left, given } = self;
        let among = format!("{hosts} of the {of} hosts that can run it");
        if asked.memory_mib > left.memory_mib {
            let asked = asked.memory_mib;
            write!(f, "it takes {asked} MiB of memory, which {among} do not have left: ")?;
            return match given.memory_mib {
                given if given < asked => write!(f, "the most that one gives now is {given} MiB"),
                given => {
                    let left = left.memory_mib;
                    write!(f, "the most that is left of one is {left} of {given} MiB")
                }
            };
        }
        if asked.gpus > left.gpus {
            let gpus = asked.gpus;
            write!(f, "it takes {gpus} of a host's GPUs, which {among} do not have left: ")?;
            return match given.gpus {
                0 => f.write_str("none gives one now"),
                given if given < gpus => write!(f, "the most that one gives now is {given}"),
                given => write!(f, "others have them of the {given} that one gives"),
            };
        }
        write!(f, "{among} have either too little memory or no GPU left for it")
    }
}
