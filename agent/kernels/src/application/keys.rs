//! The keys that a specification may have.

use toml::{Table, Value};

use super::{ApplicationError, excerpt};

/// Refuses a table with a key that `example` does not have, at any depth; a key that is commented
/// out there is one as well.
pub(super) fn check(table: &Table, example: &str) -> Result<(), ApplicationError> {
    check_in(table, "", &known(example))
}

fn check_in(table: &Table, part: &str, known: &[(String, String)]) -> Result<(), ApplicationError> {
    for (key, value) in table {
        let here = || known.iter().filter(|(in_part, _)| in_part == part).map(|(_, key)| key);
        if !here().any(|known| known == key) {
            let nearest = here()
                .map(|candidate| (strsim::jaro_winkler(key, candidate), candidate))
                .filter(|(likeness, _)| *likeness > 0.7)
                .max_by(|(a, _), (b, _)| a.total_cmp(b));
            let place = if part.is_empty() { String::new() } else { format!(" in [{part}]") };
            let hint = nearest.map(|(_, near)| format!("; did you mean {near:?}?"));
            let hint = hint.unwrap_or_else(|| {
                let all: Vec<&str> = here().map(String::as_str).collect();
                format!("; there are {}", all.join(", "))
            });
            let key = excerpt::name(key);
            return Err(ApplicationError::UnknownKey(format!("{key:?}{place}{hint}")));
        }
        let tables: Vec<&Table> = match value {
            Value::Table(table) => vec![table],
            Value::Array(values) => values.iter().filter_map(Value::as_table).collect(),
            _ => Vec::new(),
        };
        tables.into_iter().try_for_each(|table| check_in(table, key, known))?;
    }
    Ok(())
}

/// Pairs of a table's name, empty for the first one, and a key in it. Tables of one line have the
/// name of the key before them.
fn known(example: &str) -> Vec<(String, String)> {
    let is_name =
        |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let mut part = String::new();
    let mut last = String::new();
    let mut known: Vec<(String, String)> = Vec::new();
    for line in example.lines() {
        let line = line.trim_start_matches("# ");
        let name = line.trim_start_matches('[').trim_end_matches(']');
        let pair = if line.starts_with('[') && is_name(name) {
            part = name.to_owned();
            Some((String::new(), part.clone()))
        } else {
            let key = line.split_once(" = ").map(|(key, _)| key).filter(|key| is_name(key));
            last = key.map_or(last, str::to_owned);
            key.map(|key| (part.clone(), key.to_owned()))
        };
        known.extend(pair.filter(|pair| !known.contains(pair)));
        // Tables of one line, in a list that may have several of them.
        for table in line.split('{').skip(1) {
            let pairs = table.split('}').next().unwrap_or_default().split(',');
            for key in pairs.filter_map(|pair| pair.split_once(" = ")).map(|(key, _)| key.trim()) {
                let pair = (last.clone(), key.to_owned());
                if is_name(key) && !known.contains(&pair) {
                    known.push(pair);
                }
            }
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "a = 1\n# bee = 2\n# Prose = of no key.\n[table]\ncat = 3\n[[list]]\ndog = 4\n\
         # short = [\n#   { elk = 5, fox = [6, 7] },\n#   # { gnu = 8 },\n# ]\n";

    fn told(text: &str) -> Option<String> {
        check(&text.parse().expect("TOML"), EXAMPLE).err().map(|error| error.to_string())
    }

    #[test]
    fn keys_of_the_example_are_known_in_their_tables() {
        assert_eq!(told("a = 5\nbee = 6\n[table]\ncat = 7\n[[list]]\ndog = 8\n"), None);
        assert_eq!(told("table = 5"), None);
        let told = told("[table]\nca = 1").expect("unknown");
        assert_eq!(told, "unknown key \"ca\" in [table]; did you mean \"cat\"?");
    }

    #[test]
    fn keys_of_tables_of_one_line_are_known_in_their_list() {
        let told = |table: &str| told(&format!("[[list]]\nshort = [{{ elk = 1 }}, {table}]"));
        assert_eq!(told("{ fox = 2, gnu = 3 }"), None);
        let wrong = told("{ fix = 2 }").expect("unknown");
        assert_eq!(wrong, "unknown key \"fix\" in [short]; did you mean \"fox\"?");
        assert!(told("{ dog = 2 }").is_some());
    }

    #[test]
    fn a_key_that_is_like_none_is_told_with_all() {
        let told = told("[[list]]\nzzz = 1").expect("unknown");
        assert_eq!(told, "unknown key \"zzz\" in [list]; there are dog, short");
    }
}
