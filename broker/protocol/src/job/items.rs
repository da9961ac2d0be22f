//! The items of a job, one behind the other in one buffer.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A list of texts that takes four bytes for each beside the text itself: a job may have millions of
/// empty ones. Written and read as a list of strings.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Items {
    text: String,
    /// Where each ends.
    ends: Vec<u32>,
}

impl Items {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The item at a place.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)? as usize;
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(begin..end)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    /// Adds one; `false` where all of them together would be longer than 4 GiB.
    fn push(&mut self, item: &str) -> bool {
        let Ok(end) = u32::try_from(self.text.len() + item.len()) else { return false };
        self.text.push_str(item);
        self.ends.push(end);
        true
    }
}

impl<S: AsRef<str>> FromIterator<S> for Items {
    fn from_iter<I: IntoIterator<Item = S>>(items: I) -> Self {
        let mut all = Self::default();
        for item in items {
            assert!(all.push(item.as_ref()), "items that a program makes are shorter than 4 GiB");
        }
        all
    }
}

impl From<Vec<String>> for Items {
    fn from(items: Vec<String>) -> Self {
        items.into_iter().collect()
    }
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl JsonSchema for Items {
    fn schema_name() -> Cow<'static, str> {
        "Items".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <Vec<String>>::json_schema(generator)
    }
}

impl Serialize for Items {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for item in self.iter() {
            list.serialize_element(item)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List)
    }
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = Items;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items, A::Error> {
        let mut items = Items::default();
        while let Some(item) = list.next_element::<String>()? {
            if !items.push(&item) {
                return Err(de::Error::custom("items are longer than 4 GiB together"));
            }
        }
        items.text.shrink_to_fit();
        items.ends.shrink_to_fit();
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn they_are_read_and_written_as_a_list_of_strings() {
        let list = ["", "a", "", "größer", "b\n", ""].map(str::to_owned).to_vec();
        let items = Items::from(list.clone());
        assert_eq!(codec::encode(&items), codec::encode(&list));
        assert_eq!(codec::decode::<Items>(&codec::encode(&list)).expect("a list"), items);
        let json = serde_json::to_string(&list).expect("JSON");
        assert_eq!(serde_json::from_str::<Items>(&json).expect("a list"), items);
        assert_eq!(items.iter().collect::<Vec<_>>(), list);
        assert_eq!((items.len(), items.get(3), items.get(6)), (6, Some("größer"), None));
    }

    #[test]
    fn a_body_of_empty_items_takes_little_more_than_itself() {
        let count = 5_000_000;
        let json = format!("[{}\"\"]", "\"\",".repeat(count - 1));
        let items: Items = serde_json::from_str(&json).expect("a list");
        assert_eq!(items.len(), count);
        assert!(items.bytes() <= 2 * json.len(), "{} of {}", items.bytes(), json.len());
    }
}
