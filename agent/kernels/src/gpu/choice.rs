//! Which GPU is used where there are several.

use wgpu::DeviceType;

use super::error::GpuError;

/// A device that could be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) kind: DeviceType,
}

/// The number of the one to be used: of those whose names have `wanted` in them, in small letters
/// or large ones, the first of the strongest kind. Software is only used when it is named: it is
/// slower than the same work on the processor, and takes all of its cores.
pub(super) fn choose(candidates: &[Candidate], wanted: Option<&str>) -> Result<usize, GpuError> {
    let names = |is: &dyn Fn(&Candidate) -> bool| -> Vec<String> {
        candidates.iter().filter(|one| is(one)).map(|one| one.name.clone()).collect()
    };
    let is_software = |one: &Candidate| one.kind == DeviceType::Cpu;
    let is_meant = |one: &Candidate| match wanted {
        Some(wanted) => one.name.to_lowercase().contains(&wanted.to_lowercase()),
        None => !is_software(one),
    };
    let meant = candidates.iter().enumerate().filter(|(_, one)| is_meant(one));
    let best = meant.min_by_key(|(at, one)| (rank(one.kind), *at));
    best.map(|(at, _)| at).ok_or_else(|| match wanted {
        Some(wanted) if !candidates.is_empty() => {
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
        Candidate { name: name.to_owned(), kind }
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
        assert_eq!(choose(&workstation(), None), Ok(2));
        assert_eq!(choose(&workstation()[..2], None), Ok(1));
        let error = choose(&workstation()[..1], None).expect_err("software is not chosen");
        let told = error.to_string();
        assert!(told.contains("(llvmpipe (LLVM 15))") && told.contains("driver"), "{told}");
        assert_eq!(choose(&workstation()[..1], Some("LLVMpipe")), Ok(0));
    }

    #[test]
    fn who_names_one_gets_it_or_hears_which_there_are() {
        assert_eq!(choose(&workstation(), Some("nvidia")), Ok(2));
        assert_eq!(choose(&workstation(), Some("a4000 #2")), Ok(3));
        let error = choose(&workstation(), Some("radeon")).expect_err("there is none");
        let told = error.to_string();
        assert!(told.contains("\"radeon\"") && told.contains("Intel UHD 770, NVIDIA"), "{told}");
    }

    #[test]
    fn without_any_device_it_is_a_driver_that_is_missing() {
        for wanted in [None, Some("nvidia")] {
            let error = choose(&[], wanted).expect_err("there is none");
            assert_eq!(error, GpuError::NoGpu { software: Vec::new() });
            assert!(error.to_string().contains("was found: install the driver"), "{error}");
        }
    }
}
