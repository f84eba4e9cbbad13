//! Batches in the layout of the kernels: feature-major, in panels of 64 samples.
//!
//! ```text
//! Panels   panel p = samples 64p .. 64p+63:   [feature][sample]     a sample is one SIMD lane
//! Blocks   block f = features 64f .. 64f+63:  [sample][feature]     the transpose, for weight gradients
//! ```
//!
//! A sample stays in its lane from the last layer through sort, score, argmax, target and loss gradient, without a
//! shuffle. The last panel is as wide as its samples need, in whole vectors of 16; lanes beyond the last sample have
//! arbitrary contents and are never read back.

use std::ops::Range;

use crate::aligned::{Aligned, LANES, padded};
use crate::kernels::Kernels;
use crate::kernels::transpose::Transpose;
use crate::kernels::unpack::Unpack;
use crate::rows::{Planes, Rows};

/// Samples in a full panel, and features in a full block.
pub(crate) const PANEL: usize = 64;

/// A matrix of samples × features.
///
/// ```
/// use bqrl_nn::Panels;
///
/// // Two samples of three features.
/// let mut batch = Panels::from_rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3);
/// assert_eq!((batch.n_samples(), batch.get(1, 0)), (2, 4.0));
/// batch.set(1, 0, 7.0);
/// assert_eq!(batch.to_rows(), [1.0, 2.0, 3.0, 7.0, 5.0, 6.0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Panels {
    n_samples: usize,
    n_features: usize,
    data: Aligned,
}

impl Panels {
    /// All zero.
    pub fn zeros(n_samples: usize, n_features: usize) -> Self {
        let data = Aligned::zeros(n_features * padded(n_samples));
        Self { n_samples, n_features, data }
    }

    /// From rows, one per sample, one after the other.
    pub fn from_rows(rows: &[f32], n_features: usize) -> Self {
        let mut panels = Self::default();
        panels.fill_from_rows(rows, n_features);
        panels
    }

    /// As [`from_rows`](Self::from_rows), in the memory at hand.
    fn fill_from_rows(&mut self, rows: &[f32], n_features: usize) {
        let order: Vec<usize> = (0..samples_in(rows, n_features)).collect();
        self.fill_in_order(Kernels::detect(), Rows::floats(rows), n_features, &order);
    }

    /// Rows in an order: sample i is row `order[i]`. Returns whether all numbers are finite.
    pub(crate) fn fill_in_order(
        &mut self,
        kernels: Kernels,
        rows: Rows,
        n_features: usize,
        order: &[usize],
    ) -> bool {
        self.resize(order.len(), n_features);
        let n_floats = n_features - rows.n_cells();
        let mut finite = true;
        for (order, panel) in order.chunks(PANEL).zip(0..) {
            let out_width = self.width(panel);
            let (cells, floats) = self.panel_mut(panel).split_at_mut(rows.n_cells() * out_width);
            let begins = |bytes: usize| -> [usize; PANEL] {
                std::array::from_fn(|lane| order.get(lane).map_or(0, |row| row * bytes))
            };
            if let Some(Planes { cells: kind, n, bytes }) = rows.planes {
                let begins = &begins(kind.bytes(n))[..order.len()];
                kernels.run(Unpack { cells: kind, n, from: bytes, begins, out: cells, out_width });
            }
            let begins = &begins(n_floats)[..order.len()];
            finite &=
                kernels.run(Transpose { from: rows.floats, begins, n: n_floats, out: floats, out_width });
        }
        finite
    }

    /// Rows, one per sample, one after the other.
    pub fn to_rows(&self) -> Vec<f32> {
        let features = |s| (0..self.n_features).map(move |f| self.get(s, f));
        (0..self.n_samples).flat_map(features).collect()
    }

    /// Changes the size and keeps the memory; the contents are then arbitrary.
    pub(crate) fn resize(&mut self, n_samples: usize, n_features: usize) {
        (self.n_samples, self.n_features) = (n_samples, n_features);
        self.data.reserve(n_features * padded(n_samples));
    }

    /// Number of samples.
    pub fn n_samples(&self) -> usize {
        self.n_samples
    }

    /// Number of features of each sample.
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// One feature of one sample.
    pub fn get(&self, sample: usize, feature: usize) -> f32 {
        self.data[self.index(sample, feature)]
    }

    /// Changes one feature of one sample.
    pub fn set(&mut self, sample: usize, feature: usize, value: f32) {
        let index = self.index(sample, feature);
        self.data[index] = value;
    }

    /// Sets every feature of every sample.
    pub fn fill(&mut self, value: f32) {
        let used = self.n_features * padded(self.n_samples);
        self.data[..used].fill(value);
    }

    /// Number of panels; the samples of panel p begin at 64p.
    pub fn n_panels(&self) -> usize {
        self.n_samples.div_ceil(PANEL)
    }

    /// One feature of a panel's samples, side by side: the fast way to go through a batch.
    pub fn lanes(&self, panel: usize, feature: usize) -> &[f32] {
        &self.panel(panel)[feature * self.width(panel)..][..self.count(panel)]
    }

    /// One feature of a panel's samples, to be written.
    pub fn lanes_mut(&mut self, panel: usize, feature: usize) -> &mut [f32] {
        let (width, count) = (self.width(panel), self.count(panel));
        &mut self.panel_mut(panel)[feature * width..][..count]
    }

    /// Samples in a panel.
    pub(crate) fn count(&self, panel: usize) -> usize {
        (self.n_samples - panel * PANEL).min(PANEL)
    }

    /// Lanes in a panel: its samples, rounded up to whole vectors.
    pub(crate) fn width(&self, panel: usize) -> usize {
        padded(self.count(panel))
    }

    /// A panel, `n_features` rows of `width` lanes.
    pub(crate) fn panel(&self, panel: usize) -> &[f32] {
        &self.data[self.range(panel)]
    }

    pub(crate) fn panel_mut(&mut self, panel: usize) -> &mut [f32] {
        let range = self.range(panel);
        &mut self.data[range]
    }

    fn range(&self, panel: usize) -> Range<usize> {
        let begin = panel * PANEL * self.n_features;
        begin..begin + self.width(panel) * self.n_features
    }

    fn index(&self, sample: usize, feature: usize) -> usize {
        let Self { n_samples, n_features, .. } = *self;
        assert!(
            sample < n_samples && feature < n_features,
            "[{sample}, {feature}] of {n_samples} × {n_features}"
        );
        let panel = sample / PANEL;
        panel * PANEL * n_features + feature * self.width(panel) + sample % PANEL
    }
}

/// The transpose of [`Panels`]: for each panel, blocks of 64 features, sample-major. Features are padded with zeros to
/// whole vectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    n_samples: usize,
    n_features: usize,
    data: Aligned,
}

impl Blocks {
    pub fn resize(&mut self, n_samples: usize, n_features: usize) {
        if (self.n_samples, self.n_features) != (n_samples, n_features) {
            // Fresh zeros, because the padding must be zero.
            *self = Self { n_samples, n_features, data: Aligned::zeros(n_samples * padded(n_features)) };
        }
    }

    /// From rows in an order: a copy, for rows are sample-major already.
    pub fn fill_in_order(&mut self, rows: &[f32], n_features: usize, order: &[usize]) {
        self.resize(order.len(), n_features);
        for (order, panel) in order.chunks(PANEL).zip(0..) {
            for block in 0..self.n_blocks() {
                let width = self.width(block);
                let first = block * PANEL;
                let features = first..(first + width).min(n_features);
                for (row, into) in order.iter().zip(self.block_mut(panel, block).chunks_exact_mut(width)) {
                    into[..features.len()].copy_from_slice(&rows[row * n_features..][features.clone()]);
                }
            }
        }
    }

    pub fn n_blocks(&self) -> usize {
        self.n_features.div_ceil(PANEL)
    }

    /// Features in a block, padded.
    pub fn width(&self, block: usize) -> usize {
        padded(self.n_features - block * PANEL).min(PANEL)
    }

    /// One sample after the other, `width` features of each.
    pub fn block(&self, panel: usize, block: usize) -> &[f32] {
        &self.data[self.range(panel, block)]
    }

    pub fn block_mut(&mut self, panel: usize, block: usize) -> &mut [f32] {
        let range = self.range(panel, block);
        &mut self.data[range]
    }

    fn range(&self, panel: usize, block: usize) -> Range<usize> {
        let count = (self.n_samples - panel * PANEL).min(PANEL);
        let begin = panel * PANEL * padded(self.n_features) + block * PANEL * count;
        begin..begin + count * self.width(block)
    }
}

/// Network inputs, in both layouts: made once for a batch and shared by all critics.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub(crate) panels: Panels,
    pub(crate) blocks: Blocks,
}

impl Inputs {
    /// From rows, one per sample, one after the other.
    pub fn from_rows(rows: &[f32], n_inputs: usize) -> Self {
        let mut inputs = Self::default();
        inputs.fill_from_rows(rows, n_inputs);
        inputs
    }

    /// As [`from_rows`](Self::from_rows), in the memory at hand.
    pub fn fill_from_rows(&mut self, rows: &[f32], n_inputs: usize) {
        let order: Vec<usize> = (0..samples_in(rows, n_inputs)).collect();
        self.fill_in_order(Kernels::detect(), Rows::floats(rows), n_inputs, &order, true);
    }

    /// Rows in an order: sample i is row `order[i]`. Returns whether all numbers are finite. A convolution does not need the blocks.
    pub(crate) fn fill_in_order(
        &mut self,
        kernels: Kernels,
        rows: Rows,
        n_inputs: usize,
        order: &[usize],
        with_blocks: bool,
    ) -> bool {
        if with_blocks {
            self.blocks.fill_in_order(&rows.expanded(n_inputs), n_inputs, order);
        }
        self.panels.fill_in_order(kernels, rows, n_inputs, order)
    }

    /// Number of samples.
    pub fn n_samples(&self) -> usize {
        self.panels.n_samples
    }
}

fn samples_in(rows: &[f32], n_features: usize) -> usize {
    assert!(
        n_features > 0 && !rows.is_empty() && rows.len().is_multiple_of(n_features),
        "rows, want a positive multiple of {n_features} floats, got {}",
        rows.len()
    );
    rows.len() / n_features
}

const _: () = assert!(PANEL.is_multiple_of(LANES));

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(n_samples: usize, n_features: usize) -> Vec<f32> {
        (0..n_samples * n_features).map(|i| i as f32).collect()
    }

    #[test]
    fn rows_survive_the_way_into_panels_and_back() {
        for (n_samples, n_features) in [(1, 1), (16, 3), (63, 2), (64, 5), (65, 70), (200, 7)] {
            let rows = rows(n_samples, n_features);
            let panels = Panels::from_rows(&rows, n_features);
            assert_eq!(panels.to_rows(), rows);
            let last = panels.n_panels() - 1;
            let lanes = panels.lanes(last, n_features - 1);
            assert_eq!(lanes.len(), n_samples - 64 * last);
            assert_eq!(lanes.last(), rows.last());
        }
    }

    #[test]
    fn blocks_hold_the_transpose_of_panels_and_zeros_beyond_it() {
        for (n_samples, n_features) in [(1, 1), (63, 2), (65, 70), (130, 200)] {
            let rows = rows(n_samples, n_features);
            let inputs = Inputs::from_rows(&rows, n_features);
            for s in 0..n_samples {
                for f in 0..padded(n_features) {
                    let block = inputs.blocks.block(s / PANEL, f / PANEL);
                    let value = block[s % PANEL * inputs.blocks.width(f / PANEL) + f % PANEL];
                    let want = if f < n_features { rows[s * n_features + f] } else { 0.0 };
                    assert_eq!(value, want, "sample {s}, feature {f}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "want a positive multiple of 3 floats, got 7")]
    fn ragged_rows_are_refused() {
        let _ = Panels::from_rows(&[0.0; 7], 3);
    }
}
