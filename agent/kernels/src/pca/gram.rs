//! Sums of squares and products, block by block.

use std::ops::Range;

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};

use crate::limits::{GRAM_BLOCK, GRAM_DEPTH};
use crate::threads;

/// A block of the sums, and a part of what is summed up.
#[derive(Debug, Clone, Copy)]
struct Block {
    row: usize,
    column: usize,
    depth: usize,
}

/// The sums of products of a matrix' rows, which are added up block by block.
///
/// # Invariants
/// Only the lower triangle is written to, by blocks; the upper one is its mirror.
#[derive(Debug)]
pub(crate) struct Gram {
    terms: usize,
    blocks: Vec<Block>,
    sums: Mat<f64>,
}

impl Gram {
    /// For the products of `side` rows of `terms` numbers each.
    pub(crate) fn new(side: usize, terms: usize) -> Self {
        let mut blocks = Vec::new();
        for column in (0..side).step_by(GRAM_BLOCK) {
            for row in (column..side).step_by(GRAM_BLOCK) {
                for depth in (0..terms).step_by(GRAM_DEPTH) {
                    blocks.push(Block { row, column, depth });
                }
            }
        }
        Self { terms, blocks, sums: Mat::zeros(side, side) }
    }

    /// How many blocks are to be added.
    pub(crate) const fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Adds some blocks of the products of `rows`, times `factor`. Each block is summed up by
    /// itself and added in its turn, so that the sums are the same on any number of threads.
    pub(crate) fn add(&mut self, blocks: Range<usize>, rows: MatRef<'_, f64>, factor: f64) {
        let (side, terms) = (self.sums.nrows(), self.terms);
        let of = &self.blocks;
        let products = threads::map(blocks.clone(), |block| {
            let block = of[block];
            let height = GRAM_BLOCK.min(side - block.row);
            let width = GRAM_BLOCK.min(side - block.column);
            let depth = GRAM_DEPTH.min(terms - block.depth);
            let left = rows.submatrix(block.row, block.depth, height, depth);
            let right = rows.submatrix(block.column, block.depth, width, depth).transpose();
            let mut product = Mat::zeros(height, width);
            matmul(product.as_mut(), Accum::Replace, left, right, factor, Par::Seq);
            product
        });
        for (block, product) in self.blocks[blocks].iter().zip(products) {
            let (height, width) = (product.nrows(), product.ncols());
            let mut target =
                self.sums.as_mut().submatrix_mut(block.row, block.column, height, width);
            target += product;
        }
    }

    /// The lower triangle of the sums.
    pub(crate) fn take(&mut self) -> Mat<f64> {
        std::mem::replace(&mut self.sums, Mat::new())
    }
}
