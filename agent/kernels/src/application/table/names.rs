//! What columns are called.

use crate::memory::{self, MemoryError};

/// Names, one after the other in one text: there may be as many as numbers in a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Names {
    text: String,
    /// Where each one ends.
    ends: Vec<usize>,
}

impl Names {
    /// The numbers from 0 to one less than `count`.
    pub(super) fn counted(count: usize) -> Self {
        (0..count).map(|number| number.to_string()).collect()
    }

    /// Adds one, if there is room for it in the memory that was free.
    pub(super) fn push(&mut self, name: &str, free_bytes: u64) -> Result<(), MemoryError> {
        self.text.push_str(name);
        self.ends.push(self.text.len());
        let bytes = self.text.capacity() + self.ends.capacity() * size_of::<usize>();
        memory::check(|| "a line of names".to_owned(), bytes as u64, free_bytes)
    }

    /// How many.
    pub(in super::super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// One of them.
    pub(in super::super) fn get(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start..end)
    }

    /// All of them.
    pub(in super::super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

impl FromIterator<String> for Names {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        let mut all = Self::default();
        for name in names {
            all.text.push_str(&name);
            all.ends.push(all.text.len());
        }
        all
    }
}
