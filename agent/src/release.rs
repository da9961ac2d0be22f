//! Getting out of a render's way: who freezes harvested work, who kills it, and what is kept frozen.
//!
//! - [`releaser`] answers the hooks of this host and stops what is in a render's way.
//! - [`slot_table`] knows which process groups run harvested work, and freezes, thaws and kills them.
//! - [`gate`] says how much may run now.
//! - [`cleaner`] clears up after an agent that was killed.

pub(crate) mod cleaner;
pub(crate) mod gate;
pub(crate) mod releaser;
pub(crate) mod slot_table;
