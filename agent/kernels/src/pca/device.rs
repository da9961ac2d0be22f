//! Principal components on a GPU.
//!
//! What a device multiplies are whole numbers. Each number of the centred matrix is rounded to
//! sixty bits, counted from the largest one of its column (of its row, where sums are over rows),
//! and cut into six digits of ten. Products of digits, and sums of some, are whole numbers that
//! single precision holds without rounding; they are added up as integers, and come back as
//! such. So the sums that come back are those of the rounded matrix, but for what is left out of
//! products of late digits (2^-67 of the largest product at most), and every device has the same to
//! the bit. Means, what comes back and the eigenproblem are double precision, on the processor.
//!
//! ```text
//! Matrix ── means, powers ──► slabs of whole numbers ──► products.wgsl ──► sums
//!                                       │                                   │ eigenvectors
//!            no more columns than rows: └────────────► products.wgsl ◄──────┤
//!                                                          │                │
//!                                                       scores          components, on the
//!                                                                       processor: more columns
//! ```
//!
//! Where few eigenvectors of many are wanted, the sums go back as a matrix of their own, to be multiplied
//! with blocks of vectors there: what is done with these between two products is the processor's.
//!
//! A matrix that is too large for a device, or for what memory it has left, goes there slab by slab,
//! of its longer side. Sums come back group by group of their tiles, each once where all slabs, or
//! all tiles, are there at once. Where there are few tiles, each is summed up in several layers, so
//! that a device has as much to do as it can.
//!
//! # How far it is from the processor's
//! About as far as another processor's. Sums in double precision are rounded at every step, and
//! which steps these are is up to a processor's instructions; a device's sums are rounded where
//! parts of them come back, a few hundred times at most. What comes before and after is computed
//! alike. So a device agrees with processors as these agree with each other, and where rounding
//! decides, it decides on all of them: components turn, the more the smaller that the root of their
//! eigenvalue, or its distance to its neighbour's, is beside the largest root. Scores and loadings
//! agree within a millionth of the largest number in their column, as votes over tables ask for,
//! where the root is 1e-4 of the largest one or more and no other root is within 1e-5 of it. Two
//! whose roots are equal are any two in their plane.
//!
//! Where there are no more columns than rows, loadings are eigenvectors, and those of a column whose
//! numbers are smaller than others by far have fewer digits, here as there: they agree as said where
//! the largest of the column, times the root's square, is 1e-9 or more. Where there are more columns
//! than rows, it makes no difference.
//!
//! # Invariants
//! A dispatch is waited for before the next one. Memory is asked for before any work is done, and
//! no more afterwards: what is sent goes through a buffer that is there for it.

mod fixed;
mod gram;
mod layout;
mod multiplier;
mod plan;
mod schedule;
mod scores;
mod solution;

#[cfg(test)]
mod tests;

pub(crate) use gram::DeviceGram;
pub use plan::DevicePcaPlan;
