//! A simulator that is known only by what it does, played with actions at random: a log with as many episodes as one likes.

use bqrl_math::rng::Rng;

use super::{Columns, Labelled};

/// A simulator. States and actions are numbers that it gives out itself; each number stands for one state or action.
pub trait Simulated {
    /// The error of a step.
    type Error;
    /// Starts an episode: the state.
    fn start(&mut self) -> Result<u32, Self::Error>;
    /// The actions that are possible in a state; at least one.
    fn actions(&mut self, state: u32) -> Result<Vec<u32>, Self::Error>;
    /// The next state, the reward, and whether the episode is over.
    fn step(&mut self, state: u32, action: u32) -> Result<(u32, f64, bool), Self::Error>;
}

/// Plays `episodes` episodes of at most `horizon` steps, every possible action equally often. The labels are left to the caller.
pub fn sample<S: Simulated>(
    simulator: &mut S,
    horizon: usize,
    episodes: usize,
    rng: &mut Rng,
) -> Result<Columns, S::Error> {
    let mut columns = Columns::default();
    let (mut next_state, mut end) = (Labelled::default(), Vec::new());
    for episode in 0..episodes {
        let mut state = simulator.start()?;
        for _ in 0..horizon {
            let actions = simulator.actions(state)?;
            let action = actions[rng.below(actions.len())];
            let (next, reward, over) = simulator.step(state, action)?;
            columns.episode.codes.push(episode as i64);
            columns.state.codes.push(i64::from(state));
            columns.action.codes.push(i64::from(action));
            columns.reward.push(reward);
            next_state.codes.push(i64::from(next));
            end.push(over);
            if over {
                break;
            }
            state = next;
        }
    }
    columns.episode.labels = (0..episodes).map(|episode| episode.to_string()).collect();
    (columns.next_state, columns.end) = (Some(next_state), Some(end));
    Ok(columns)
}
