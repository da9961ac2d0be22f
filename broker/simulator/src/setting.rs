//! What a user sets: `key=value`, checked against the parameters of a scenario.

use thiserror::Error;

use crate::nearest::{UnknownName, find};
use crate::parameters::{Parameter, Settings, Value};
use crate::scenario::Scenario;

/// Why something cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SettingError {
    /// It has another form.
    #[error("{0:?} sets nothing: expected KEY=VALUE")]
    Form(String),
    /// The scenario has no such parameter.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// It is set already.
    #[error("{0} is set twice")]
    Twice(&'static str),
    /// Its value is of another kind or out of range.
    #[error("{name}={text:?}: expected {expected}; it is: {about}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What was given.
        text: String,
        /// What can be.
        expected: String,
        /// What the parameter is.
        about: &'static str,
    },
}

/// The settings of a scenario: its defaults and over them what the user set.
///
/// # Errors
/// The first that cannot be set.
pub fn settings<'a>(
    scenario: &dyn Scenario,
    assignments: impl IntoIterator<Item = &'a str>,
) -> Result<Settings, SettingError> {
    let parameters = scenario.parameters();
    let mut settings = Settings::defaults(&parameters);
    let mut set: Vec<&'static str> = Vec::new();
    for assignment in assignments {
        let (name, text) =
            assignment.split_once('=').ok_or_else(|| SettingError::Form(assignment.to_owned()))?;
        let known = parameters.iter().map(|parameter| parameter.name);
        let name = find("parameter", name.trim(), Some(scenario.name()), known)?;
        if set.contains(&name) {
            return Err(SettingError::Twice(name));
        }
        set.push(name);
        let parameter = parameters.iter().find(|parameter| parameter.name == name);
        let parameter = parameter.expect("its name was found among them");
        settings.set(name, parse(parameter, text.trim())?);
    }
    Ok(settings)
}

/// The value that a text gives a parameter.
fn parse(parameter: &Parameter, text: &str) -> Result<Value, SettingError> {
    let (least, greatest) = parameter.range;
    let in_range = |number: &f64| (least..=greatest).contains(number);
    let value = match &parameter.default {
        Value::Count(_) => {
            let count = text.parse::<u64>().ok().filter(|count| in_range(&(*count as f64)));
            count.map(Value::Count)
        }
        Value::Number(_) => {
            let number = text.parse::<f64>().ok();
            // What is infinite or no number is refused even where the range has no end.
            let number = number.filter(|number| number.is_finite() && in_range(number));
            // The sum makes -0 a 0, which prints as one.
            number.map(|number| Value::Number(number + 0.0))
        }
        Value::Flag(_) => match text {
            "true" | "yes" => Some(Value::Flag(true)),
            "false" | "no" => Some(Value::Flag(false)),
            _ => None,
        },
        Value::File(_) => Some(Value::File(text.to_owned())).filter(|_| !text.is_empty()),
        Value::Word(_, words) => {
            words.iter().find(|word| **word == text).map(|word| Value::Word(word, words))
        }
    };
    value.ok_or_else(|| SettingError::Value {
        name: parameter.name,
        text: text.to_owned(),
        expected: parameter.expected(),
        about: parameter.about,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Metric, Order, Outcome, Progress};

    struct Farm;

    impl Scenario for Farm {
        fn name(&self) -> &'static str {
            "farm"
        }
        fn about(&self) -> &'static str {
            "a farm"
        }
        fn parameters(&self) -> Vec<Parameter> {
            vec![
                Parameter::count("hosts", 76, (1, 100_000), "hosts of the farm", "the paper"),
                Parameter::number("faulty_share", 0.0, (0.0, 1.0), "hosts that lie", "the paper"),
                Parameter::number("idle_s", 1.0, (0.0, f64::INFINITY), "idle time", "the paper"),
                Parameter::flag("overlapped", false, "load while rendering", "the paper"),
                Parameter::file("log", "what was recorded"),
                Parameter::word("load", &["none", "planetlab"], "what runs beside", "the paper"),
            ]
        }
        fn policies(&self) -> &'static [&'static str] {
            &["plain"]
        }
        fn metrics(&self) -> &'static [Metric] {
            &[]
        }
        fn run(&self, _: &Order<'_>, _: &dyn Progress) -> Result<Outcome, String> {
            Ok(Outcome::default())
        }
    }

    fn refusal(assignment: &str) -> String {
        settings(&Farm, [assignment]).expect_err(assignment).to_string()
    }

    #[test]
    fn what_is_set_replaces_the_default_and_the_rest_stays() {
        let set = ["hosts=3", "faulty_share=0.25", "overlapped=yes", "log=a=b", "load=planetlab"];
        let settings = settings(&Farm, set).expect("all are right");
        assert_eq!(settings.count("hosts"), 3);
        assert_eq!(settings.number("faulty_share"), 0.25);
        assert_eq!(settings.number("idle_s"), 1.0);
        assert!(settings.flag("overlapped"));
        assert_eq!(settings.file("log"), Some("a=b"));
        assert_eq!(settings.word("load"), "planetlab");
    }

    #[test]
    fn an_unknown_parameter_is_refused_with_the_nearest_ones() {
        let error = refusal("faulty_shere=1");
        assert!(error.contains("no parameter \"faulty_shere\" in farm; nearest: faulty_share"));
        assert_eq!(refusal("hosts"), "\"hosts\" sets nothing: expected KEY=VALUE");
        let twice = settings(&Farm, ["hosts=1", "hosts=2"]).expect_err("which?");
        assert_eq!(twice.to_string(), "hosts is set twice");
    }

    #[test]
    fn a_value_of_another_kind_or_out_of_range_is_refused_with_what_can_be() {
        for text in ["hosts=", "hosts=0", "hosts=100001", "hosts=1.5", "hosts=-1", "hosts=many"] {
            let error = refusal(text);
            assert!(error.contains("expected a whole number from 1 to 100000"), "{error}");
        }
        for text in ["faulty_share=1.01", "faulty_share=-0.1", "faulty_share=x"] {
            let error = refusal(text);
            assert!(error.contains("expected a finite number from 0 to 1"), "{error}");
        }
        for text in ["idle_s=inf", "idle_s=NaN", "idle_s=1e999", "idle_s=-inf"] {
            let error = refusal(text);
            assert!(error.contains("expected a finite number of at least 0"), "{error}");
        }
        for (text, expected) in [
            ("overlapped=maybe", "expected true or false"),
            ("log=", "expected a path"),
            ("load=heavy", "expected none or planetlab"),
        ] {
            let error = refusal(text);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn zero_has_no_sign() {
        let settings = settings(&Farm, ["faulty_share=-0"]).expect("a zero");
        assert!(settings.number("faulty_share").is_sign_positive());
    }
}
