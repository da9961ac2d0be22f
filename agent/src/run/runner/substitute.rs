//! Index and item of a workunit in a task's arguments.

/// Puts index and item in. What comes in is not looked at again.
pub(super) fn substitute(argument: &str, index: &str, item: &str) -> String {
    let mut text = String::with_capacity(argument.len() + item.len());
    let mut rest = argument;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let (value, length) = if rest.starts_with(INDEX) {
            (index, INDEX.len())
        } else if rest.starts_with(ITEM) {
            (item, ITEM.len())
        } else {
            ("{", 1)
        };
        text.push_str(value);
        rest = &rest[length..];
    }
    text.push_str(rest);
    text
}

const INDEX: &str = "{index}";
const ITEM: &str = "{item}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_and_item_are_put_in_once() {
        assert_eq!(substitute("a{index}b{item}c", "7", "x"), "a7bxc");
        assert_eq!(substitute("{item}", "7", "{index}{item}"), "{index}{item}");
        assert_eq!(substitute("{{index}} {other} {", "7", "x"), "{7} {other} {");
        assert_eq!(substitute("größe {item}", "7", "ü"), "größe ü");
    }
}
