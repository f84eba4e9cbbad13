//! A minibatch of transitions, checked and brought into the layout of the kernels.

use std::ops::Range;

use crate::ensemble::UpdateError;
use crate::kernels::Kernels;
use crate::panels::{Inputs, PANEL, Panels};
use crate::rows::Rows;
use crate::shape::Shape;

/// A minibatch of transitions (x, a, r, x', d), B of each.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// x, one row of D inputs per transition.
    pub inputs: Rows<'a>,
    /// a.
    pub actions: &'a [usize],
    /// r.
    pub rewards: &'a [f32],
    /// x', as `inputs`; not used where `continuation` is 0, but finite.
    pub next_inputs: Rows<'a>,
    /// 1−d, times the discount: 0 where the episode is over, so that there is no next state to evaluate.
    pub continuation: &'a [f32],
}

/// The parts of a transition other than its inputs.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Reward,
    /// 1−d, times the discount.
    Continuation,
    /// The index of the action taken, as a float.
    Action,
}

/// A [`Batch`] in lanes, shared by all critics. Its memory is kept from step to step.
///
/// Transitions are in the order of their actions. So the lanes of an action are neighbours, and a critic that learns computes only the
/// outputs of the actions taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transitions {
    pub inputs: Inputs,
    pub next_inputs: Panels,
    pub spans: Vec<Span>,
    outcomes: Panels,
    order: Vec<usize>,
}

/// The lanes of a panel that took the same action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub panel: usize,
    pub lanes: Range<usize>,
    pub action: usize,
}

impl Transitions {
    pub fn fill(&mut self, kernels: Kernels, shape: &Shape, batch: &Batch) -> Result<(), UpdateError> {
        let Batch { inputs, actions, rewards, next_inputs, continuation } = *batch;
        let (b, n_inputs, n_actions) = (actions.len(), shape.n_inputs, shape.n_actions);
        assert!(b > 0, "a batch needs at least one transition");
        assert_eq!(
            (rewards.len(), continuation.len()),
            (b, b),
            "rewards and continuation, want one per action"
        );
        let share = |c: &f32| (0.0..=1.0).contains(c);
        assert!(continuation.iter().all(share), "continuation must lie in [0, 1], got {continuation:?}");
        assert_eq!(inputs.n_samples(n_inputs), b, "rows of inputs, want one per action");
        assert_eq!(next_inputs.n_samples(n_inputs), b, "rows of next inputs, want one per action");
        assert!(actions.iter().all(|&a| a < n_actions), "actions must be below {n_actions}, got {actions:?}");

        self.order.clear();
        self.order.extend(0..b);
        self.order.sort_by_key(|&s| actions[s]);
        // Here and not in the loss: a clipped residual would turn a NaN into a harmless-looking gradient.
        check_finite("rewards", rewards, 1)?;
        if !self.inputs.fill_in_order(kernels, inputs, n_inputs, &self.order, shape.sight.is_none()) {
            check_finite("inputs", inputs.floats, n_inputs - inputs.n_cells())?;
        }
        if !self.next_inputs.fill_in_order(kernels, next_inputs, n_inputs, &self.order) {
            check_finite("next_inputs", next_inputs.floats, n_inputs - next_inputs.n_cells())?;
        }
        self.outcomes.resize(b, 3);
        self.spans.clear();
        for (lane, &s) in self.order.iter().enumerate() {
            self.outcomes.set(lane, Outcome::Reward as usize, rewards[s]);
            self.outcomes.set(lane, Outcome::Continuation as usize, continuation[s]);
            self.outcomes.set(lane, Outcome::Action as usize, actions[s] as f32);
            let (panel, lane, action) = (lane / PANEL, lane % PANEL, actions[s]);
            match self.spans.last_mut() {
                Some(span) if span.panel == panel && span.action == action => span.lanes.end = lane + 1,
                _ => self.spans.push(Span { panel, lanes: lane..lane + 1, action }),
            }
        }
        Ok(())
    }

    /// The actions taken in a panel, in order.
    pub fn spans_of(&self, panel: usize) -> &[Span] {
        let first = self.spans.partition_point(|span| span.panel < panel);
        let end = self.spans.partition_point(|span| span.panel <= panel);
        &self.spans[first..end]
    }

    /// One number per lane of a panel.
    pub fn outcome(&self, panel: usize, outcome: Outcome) -> &[f32] {
        let width = self.outcomes.width(panel);
        &self.outcomes.panel(panel)[outcome as usize * width..][..width]
    }
}

fn check_finite(name: &'static str, rows: &[f32], n: usize) -> Result<(), UpdateError> {
    match rows.iter().position(|x| !x.is_finite()) {
        Some(i) => Err(UpdateError::NotFinite { name, transition: i / n, value: rows[i] }),
        None => Ok(()),
    }
}
