//! What is known of a workunit beforehand: its application, and how large its work is. Run times are
//! recorded under that, and predicted from it.

use std::collections::BTreeMap;

use gleaner_protocol::job::{JobSpec, Task, Workunits};
use gleaner_protocol::limits::FEATURES_MAX;
use gleaner_protocol::{FRAME_KERNEL, KernelName};

/// Arguments that are looked at for numbers, the first ones.
const ARGUMENTS_MAX: usize = 32;
/// As much of a text is looked at for numbers, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// Digits of a module's digest in its name.
const DIGEST_DIGITS: usize = 16;

/// What the task of a workunit is called where run times are recorded: a kernel with its part, where that is a name; the path of a
/// program; a module by the beginning of its digest.
#[must_use]
pub fn application(spec: &JobSpec, index: u32) -> String {
    match &spec.task {
        Task::Kernel(kernel) => kernel.to_string(),
        Task::Command(command) => command.argv.first().cloned().unwrap_or_default(),
        Task::Wasm(wasm) => {
            let digits: String = wasm.module.to_string().chars().take(DIGEST_DIGITS).collect();
            format!("module-{digits}")
        }
        Task::Application(application) => match spec.workunits.item(index) {
            Some(part) if number(part).is_none() && KernelName::new(part).is_ok() => {
                format!("{}/{part}", application.kernel)
            }
            _ => application.kernel.to_string(),
        },
        Task::Frame(_) => FRAME_KERNEL.to_owned(),
    }
}

/// The numbers of a workunit: what its submitter said, and those among its arguments and in its
/// item.
#[must_use]
pub fn features(spec: &JobSpec, index: u32) -> BTreeMap<String, f64> {
    let said = spec.profile.features.iter().map(|(name, number)| (name.clone(), number.get()));
    let mut features: BTreeMap<String, f64> = said.collect();
    let item = spec.workunits.item(index);
    let mut add = |name: String, number: f64| {
        if features.len() < FEATURES_MAX {
            features.entry(name).or_insert(number);
        }
    };
    let arguments = match &spec.task {
        Task::Command(command) => command.argv.get(1..).unwrap_or_default(),
        Task::Wasm(wasm) => &wasm.args[..],
        Task::Kernel(_) | Task::Application(_) | Task::Frame(_) => &[],
    };
    for (at, argument) in (1..).zip(arguments.iter().take(ARGUMENTS_MAX)) {
        let argument = match argument.contains('{') && argument.len() <= TEXT_BYTES_MAX {
            true => &argument
                .replace("{index}", &index.to_string())
                .replace("{item}", beginning(item.unwrap_or_default())),
            false => argument,
        };
        // A number, or an option with one.
        let value = argument.split_once('=').map_or(&argument[..], |(_, value)| value);
        if let Some(number) = number(value) {
            add(format!("arg{at}"), number);
        }
    }
    let is_part = matches!(spec.task, Task::Application(_));
    let words = beginning(item.unwrap_or_default()).split([' ', '\t', ',', ';', ':', '=']);
    for (at, number) in (1..).zip(words).filter_map(|(at, word)| Some((at, number(word)?))) {
        add(if is_part { "part".to_owned() } else { format!("item{at}") }, number);
    }
    features
}

/// Whether the workunits of a job may differ in any of that.
pub(crate) fn workunits_differ(spec: &JobSpec) -> bool {
    let arguments = match &spec.task {
        Task::Command(command) => command.argv.get(1..).unwrap_or_default(),
        Task::Wasm(wasm) => &wasm.args[..],
        Task::Kernel(_) | Task::Application(_) | Task::Frame(_) => &[],
    };
    let is_array = matches!(spec.workunits, Workunits::Count(_));
    !is_array || arguments.iter().take(ARGUMENTS_MAX).any(|argument| argument.contains('{'))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(json: &str) -> JobSpec {
        serde_json::from_str(json).expect("a job")
    }

    fn names(spec: &JobSpec, index: u32) -> Vec<(String, f64)> {
        features(spec, index).into_iter().collect()
    }

    fn pairs(pairs: &[(&str, f64)]) -> Vec<(String, f64)> {
        pairs.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    #[test]
    fn a_program_has_the_numbers_of_its_arguments() {
        let mut spec = job(
            r#"{"task":{"command":{"argv":["/usr/bin/render","--samples=64","-o","x.png","{index}","{item}","inf"]}},
                "workunits":{"items":["0.5 high 12"]},"profile":{"features":{"arg1":7,"faces":1000}}}"#,
        );
        assert_eq!(application(&spec, 0), "/usr/bin/render");
        let said =
            [("arg1", 7.0), ("arg4", 0.0), ("faces", 1000.0), ("item1", 0.5), ("item3", 12.0)];
        assert_eq!(names(&spec, 0), pairs(&said));
        spec.workunits = Workunits::Count(9);
        assert_eq!(names(&spec, 3)[1], ("arg4".to_owned(), 3.0));
    }

    #[test]
    fn a_kernel_has_its_part_as_a_number_or_in_its_name() {
        let digest = gleaner_protocol::Digest::of(b"");
        let of = |part: &str| {
            let task = format!(r#"{{"application":{{"kernel":"npairs","spec":"{digest}"}}}}"#);
            job(&format!(r#"{{"task":{task},"workunits":{{"items":["{part}"]}}}}"#))
        };
        assert_eq!(
            (application(&of("4"), 0), names(&of("4"), 0)),
            ("npairs".into(), pairs(&[("part", 4.0)]))
        );
        assert_eq!(
            (application(&of("left"), 0), names(&of("left"), 0)),
            ("npairs/left".into(), vec![])
        );
        let game =
            job(r#"{"task":{"kernel":"gametree"},"workunits":{"items":["8/8 w - - 0 1;5"]}}"#);
        assert_eq!(application(&game, 0), "gametree");
        assert_eq!(names(&game, 0).last(), Some(&("item7".to_owned(), 5.0)));
        let module = job(&format!(
            r#"{{"task":{{"wasm":{{"module":"{digest}","args":["2"]}}}},"workunits":{{"count":1}}}}"#
        ));
        assert!(application(&module, 0).starts_with("module-"));
        assert_eq!(application(&module, 0).len(), 7 + DIGEST_DIGITS);
        assert_eq!(names(&module, 0), pairs(&[("arg1", 2.0)]));
    }

    #[test]
    fn long_texts_are_looked_at_in_part() {
        let mut spec = job(r#"{"task":{"command":{"argv":["/x"]}},"workunits":{"count":1}}"#);
        let Task::Command(command) = &mut spec.task else { panic!("a command") };
        command.argv.extend((0..500).map(|at| at.to_string()));
        command.argv.push("{item}".repeat(10_000));
        spec.workunits = Workunits::Items(vec!["ü 1 ".repeat(9_000)].into());
        assert_eq!(features(&spec, 0).len(), FEATURES_MAX);
    }
}
