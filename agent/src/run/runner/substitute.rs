//! Index, item and chunk of a workunit in a task's arguments.

/// Puts index, item and the name of the chunk in, where there is one. What comes in is not looked at
/// again.
pub(super) fn substitute(argument: &str, index: &str, item: &str, chunk: Option<&str>) -> String {
    let mut text = String::with_capacity(argument.len() + item.len());
    let mut rest = argument;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let (value, length) = if rest.starts_with(INDEX) {
            (index, INDEX.len())
        } else if rest.starts_with(ITEM) {
            (item, ITEM.len())
        } else if let Some(chunk) = chunk.filter(|_| rest.starts_with(CHUNK)) {
            (chunk, CHUNK.len())
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
const CHUNK: &str = "{chunk}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_and_item_are_put_in_once() {
        assert_eq!(substitute("a{index}b{item}c", "7", "x", None), "a7bxc");
        assert_eq!(substitute("{item}", "7", "{index}{item}", None), "{index}{item}");
        assert_eq!(substitute("{{index}} {other} {", "7", "x", None), "{7} {other} {");
        assert_eq!(substitute("{chunk}", "7", "x", None), "{chunk}");
        let chunk = Some("{index}.nrrd");
        assert_eq!(substitute("-i{chunk} {item}", "7", "x", chunk), "-i{index}.nrrd x");
        assert_eq!(substitute("größe {item}", "7", "ü", None), "größe ü");
    }
}
