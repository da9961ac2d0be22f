//! What a node keeps of the chunks that it read: the least recently used ones go first.

/// Items with their sizes in the order of their last use, within a quota.
///
/// An item that is larger than the whole quota is kept alone: it is being read.
///
/// # Invariants
/// - The sizes add up to no more than the quota, or there is one item.
/// - No item is there twice.
#[derive(Debug, Clone)]
pub struct Recency<T> {
    quota_bytes: u64,
    used_bytes: u64,
    uses: u64,
    kept: Vec<Kept<T>>,
}

#[derive(Debug, Clone, Copy)]
struct Kept<T> {
    item: T,
    last_use: u64,
    bytes: u64,
}

impl<T: Copy + Eq> Recency<T> {
    /// Nothing yet.
    #[must_use]
    pub const fn new(quota_bytes: u64) -> Self {
        Self { quota_bytes, used_bytes: 0, uses: 0, kept: Vec::new() }
    }

    /// Whether it is there.
    #[must_use]
    pub fn contains(&self, item: T) -> bool {
        self.kept.iter().any(|kept| kept.item == item)
    }

    /// How many are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// All of them, in no particular order that is the same in each run.
    pub fn items(&self) -> impl Iterator<Item = T> {
        self.kept.iter().map(|kept| kept.item)
    }

    /// Uses an item, which is taken in where it is not there; `dropped` is told of each that goes
    /// for it. Returns whether it was there.
    pub fn touch(&mut self, item: T, bytes: u64, mut dropped: impl FnMut(T)) -> bool {
        self.uses += 1;
        let last_use = self.uses;
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.item == item) {
            kept.last_use = last_use;
            return true;
        }
        while self.used_bytes.saturating_add(bytes) > self.quota_bytes
            && let Some(oldest) = self.oldest_at()
        {
            let oldest = self.kept.swap_remove(oldest);
            self.used_bytes -= oldest.bytes;
            dropped(oldest.item);
        }
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        self.kept.push(Kept { item, last_use, bytes });
        false
    }

    /// Takes an item out; whether it was there.
    pub fn remove(&mut self, item: T) -> bool {
        let at = self.kept.iter().position(|kept| kept.item == item);
        at.map(|at| self.used_bytes -= self.kept.swap_remove(at).bytes).is_some()
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.used_bytes = 0;
    }

    fn oldest_at(&self) -> Option<usize> {
        let indexed = self.kept.iter().enumerate();
        indexed.min_by_key(|(_, kept)| kept.last_use).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(kept: &mut Recency<char>, item: char, bytes: u64) -> (bool, Vec<char>) {
        let mut dropped = Vec::new();
        let was_there = kept.touch(item, bytes, |item| dropped.push(item));
        (was_there, dropped)
    }

    #[test]
    fn the_least_recently_used_go_until_the_new_one_fits() {
        let mut kept = Recency::new(10);
        for item in ['a', 'b', 'c'] {
            assert_eq!(touch(&mut kept, item, 3), (false, vec![]));
        }
        assert_eq!(touch(&mut kept, 'a', 3), (true, vec![]));
        assert_eq!(touch(&mut kept, 'd', 6), (false, vec!['b', 'c']));
        assert!(kept.contains('a') && kept.contains('d') && kept.len() == 2);
    }

    #[test]
    fn what_is_larger_than_the_quota_is_kept_alone() {
        let mut kept = Recency::new(10);
        touch(&mut kept, 'a', 4);
        assert_eq!(touch(&mut kept, 'b', 11), (false, vec!['a']));
        assert_eq!(touch(&mut kept, 'c', 1), (false, vec!['b']));
        assert!(kept.remove('c') && !kept.remove('c') && kept.is_empty());
        assert_eq!(touch(&mut kept, 'd', 10), (false, vec![]));
    }
}
