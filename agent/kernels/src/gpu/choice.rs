//! Which GPU is used where there are several.

use gleaner_protocol::PciAddress;
use wgpu::DeviceType;

use super::error::GpuError;

/// A device that could be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) kind: DeviceType,
    /// Where it is, if it is on a bus and its driver says so.
    pub(super) pci: Option<PciAddress>,
}

/// The number of the one to be used: of those whose names have `wanted` in them, in small letters
/// or large ones, the first of the strongest kind; with `place`, of those that are there and no
/// others. Software is only used when it is named: it is slower than the same work on the processor,
/// and takes all of its cores.
pub(super) fn choose(
    candidates: &[Candidate],
    wanted: Option<&str>,
    place: Option<PciAddress>,
) -> Result<usize, GpuError> {
    let names = |is: &dyn Fn(&Candidate) -> bool| -> Vec<String> {
        candidates.iter().filter(|one| is(one)).map(|one| one.name.clone()).collect()
    };
    let is_software = |one: &Candidate| one.kind == DeviceType::Cpu;
    let is_meant = |one: &Candidate| match wanted {
        Some(wanted) => one.name.to_lowercase().contains(&wanted.to_lowercase()),
        None => !is_software(one),
    };
    let is_there = |one: &Candidate| place.is_none() || one.pci == place;
    let meant = candidates.iter().enumerate().filter(|(_, one)| is_meant(one) && is_there(one));
    let best = meant.min_by_key(|(at, one)| (rank(one.kind), *at));
    best.map(|(at, _)| at).ok_or_else(|| match (place, wanted) {
        (Some(place), _) if candidates.iter().any(is_meant) => {
            GpuError::NonePlaced { place, seen: names(&is_meant) }
        }
        (_, Some(wanted)) if !candidates.is_empty() => {
            GpuError::NoneNamed { wanted: wanted.to_owned(), seen: names(&|_| true) }
        }
        _ => GpuError::NoGpu { software: names(&is_software) },
    })
}

/// The lower, the stronger.
const fn rank(kind: DeviceType) -> u8 {
    match kind {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, kind: DeviceType) -> Candidate {
        Candidate { name: name.to_owned(), kind, pci: None }
    }

    fn place(bus: u8) -> Option<PciAddress> {
        Some(format!("0000:{bus:02x}:00.0").parse().expect("an address"))
    }

    fn workstation() -> Vec<Candidate> {
        vec![
            candidate("llvmpipe (LLVM 15)", DeviceType::Cpu),
            candidate("Intel UHD 770", DeviceType::IntegratedGpu),
            candidate("NVIDIA RTX A4000 #1", DeviceType::DiscreteGpu),
            candidate("NVIDIA RTX A4000 #2", DeviceType::DiscreteGpu),
        ]
    }

    #[test]
    fn the_strongest_kind_is_used_and_software_only_by_its_name() {
        assert_eq!(choose(&workstation(), None, None), Ok(2));
        assert_eq!(choose(&workstation()[..2], None, None), Ok(1));
        let error = choose(&workstation()[..1], None, None).expect_err("software is not chosen");
        let told = error.to_string();
        assert!(told.contains("(llvmpipe (LLVM 15))") && told.contains("driver"), "{told}");
        assert_eq!(choose(&workstation()[..1], Some("LLVMpipe"), None), Ok(0));
    }

    #[test]
    fn who_names_one_gets_it_or_hears_which_there_are() {
        assert_eq!(choose(&workstation(), Some("nvidia"), None), Ok(2));
        assert_eq!(choose(&workstation(), Some("a4000 #2"), None), Ok(3));
        let error = choose(&workstation(), Some("radeon"), None).expect_err("there is none");
        let told = error.to_string();
        assert!(told.contains("\"radeon\"") && told.contains("Intel UHD 770, NVIDIA"), "{told}");
    }

    #[test]
    fn who_says_where_it_is_gets_that_one_or_none() {
        let mut there = workstation();
        there.iter_mut().zip(0..).skip(1).for_each(|(one, bus)| one.pci = place(bus));
        assert_eq!(choose(&there, None, place(3)), Ok(3));
        assert_eq!(choose(&there, Some("nvidia"), place(3)), Ok(3));
        assert_eq!(choose(&there, None, place(1)), Ok(1));
        let error = choose(&there, Some("nvidia"), place(1)).expect_err("Intel's is there");
        let told = error.to_string();
        let says = "no GPU is at 0000:01:00.0 of those that are meant (NVIDIA RTX A4000 #1, NVIDIA";
        assert!(told.starts_with(says), "{told}");
        // It may be another one with the same name.
        assert!(choose(&there, None, place(9)).is_err());
        assert!(choose(&workstation(), None, place(3)).is_err());
        let error = choose(&there, Some("radeon"), place(3)).expect_err("there is none");
        assert!(matches!(error, GpuError::NoneNamed { .. }), "{error}");
    }

    #[test]
    fn without_any_device_it_is_a_driver_that_is_missing() {
        for (wanted, place) in [(None, None), (Some("nvidia"), None), (None, place(1))] {
            let error = choose(&[], wanted, place).expect_err("there is none");
            assert_eq!(error, GpuError::NoGpu { software: Vec::new() });
            assert!(error.to_string().contains("was found: install the driver"), "{error}");
        }
    }
}
