//! The play loop: the only one. Training, evaluation, Python and the tests all play through it.
//!
//! ```text
//! for every lane between episodes:   s_0 = reset,  memo = player.begin(s_0),  h = 0, c = 0
//! a_1 … a_n   = player.act((h, s, c) and memo of every lane that waits)
//! (s', r, end) of every lane = one step of all lanes
//! player.observe(lane, (x, a, γ^h r, x', d)),  then  h ← h + 1, c ← c + γ^h r
//! player.tick_is_over()
//! ```
//!
//! One pass through this is a *tick*. With one lane a tick is one step of Algorithm 1's inner loop (lines 5–29). A lane's
//! episode never depends on the other lanes but through what the player learned from them.

use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::lanes::{EnvError, Lanes, SavedLanes, Seen};
use bqrl_mdp::trajectory::{End, Observation};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Agent, Clock, Input, LearnError, Memo, Transition, Waiting};

/// The decision maker in the lanes: a learner, or a policy that is evaluated.
pub trait Player {
    /// An episode starts in a lane.
    fn begin(&mut self, lane: usize, start: &Observation) -> Memo;
    /// One action per lane that waits; `lanes` says which they are.
    fn act(&mut self, lanes: &[usize], waiting: &[Waiting]) -> Vec<usize>;
    /// The result of an action.
    fn observe(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError>;
    /// Every lane has been observed.
    fn tick_is_over(&mut self) -> Result<(), LearnError>;
}

/// Why play stopped.
#[derive(Debug, Error)]
pub enum PlayError {
    /// The environment failed.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The agent could not learn.
    #[error(transparent)]
    Learn(#[from] LearnError),
}

/// A finished episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    /// Where.
    pub lane: usize,
    /// G, discounted.
    pub episode_return: f64,
    /// The plain sum of its rewards.
    pub undiscounted: f64,
    /// Decisions taken.
    pub length: usize,
}

/// One lane's episode.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Episode {
    stage: usize,
    observation: Observation,
    collected: f64,
    undiscounted: f64,
    memo: Memo,
}

/// Lanes that are played.
pub struct Play {
    lanes: Box<dyn Lanes>,
    /// By lane; `None` between episodes.
    episodes: Vec<Option<Episode>>,
    /// Lanes that start no further episode.
    closed: Vec<bool>,
    discount: f64,
}

/// The state of lanes in the middle of their episodes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SavedPlay {
    lanes: SavedLanes,
    episodes: Vec<Option<Episode>>,
}

impl Play {
    /// Before the first episode of every lane.
    pub fn new(lanes: Box<dyn Lanes>) -> Self {
        let n = lanes.n_lanes();
        let discount = lanes.spec().discount;
        Self { lanes, episodes: vec![None; n], closed: vec![false; n], discount }
    }

    /// The environment.
    pub fn lanes(&self) -> &dyn Lanes {
        &*self.lanes
    }

    /// Gives up every open episode; the next tick starts new ones.
    pub fn abandon(&mut self) {
        self.episodes.fill(None);
    }

    /// Starts no further episode in a lane.
    pub fn close(&mut self, lane: usize) {
        self.closed[lane] = true;
    }

    /// Whether some lane is in an episode.
    pub fn is_open(&self) -> bool {
        self.episodes.iter().any(Option::is_some)
    }

    /// One step of all lanes; returns the steps that were taken and the episodes that ended, in the order of the lanes.
    ///
    /// When the environment fails to reset or to step, open episodes stay as they were. When a result cannot be used, all of
    /// them are given up: some lanes have moved on and others not.
    pub fn tick(&mut self, player: &mut dyn Player) -> Result<(usize, Vec<Finished>), PlayError> {
        for lane in 0..self.episodes.len() {
            if self.episodes[lane].is_none()
                && !self.closed[lane]
                && let Some(observation) = self.lanes.reset(lane)?
            {
                self.begin(lane, observation, player);
            }
        }
        let actions = self.act(player);
        let seen = self.lanes.step(&actions)?;
        let observed = self.observe_all(seen, &actions, player);
        if observed.is_err() {
            self.abandon();
        }
        observed
    }

    /// Hands the results of a step to the player.
    fn observe_all(
        &mut self,
        seen: Vec<Seen>,
        actions: &[Option<usize>],
        player: &mut dyn Player,
    ) -> Result<(usize, Vec<Finished>), PlayError> {
        if seen.len() != actions.len() {
            let (got, want) = (seen.len(), actions.len());
            return Err(EnvError::new(format!("a step of {want} lanes gave {got} results")).into());
        }
        let (mut steps, mut finished) = (0, Vec::new());
        for (lane, (seen, &action)) in seen.into_iter().zip(actions).enumerate() {
            match (seen, action) {
                // An environment may restart a lane by itself; a closed one stays between episodes.
                (Seen::Start(_), None) if self.closed[lane] => {}
                (Seen::Start(observation), None) => self.begin(lane, observation, player),
                (Seen::Step(step), Some(action)) => {
                    steps += 1;
                    finished.extend(self.observe(lane, action, step, player)?);
                }
                (Seen::Nothing, _) | (Seen::Step(_), None) => {}
                (Seen::Start(_), Some(_)) => {
                    let message = format!("lane {lane} started an episode instead of a step");
                    return Err(EnvError::new(message).into());
                }
            }
        }
        player.tick_is_over()?;
        Ok((steps, finished))
    }

    fn begin(&mut self, lane: usize, observation: Observation, player: &mut dyn Player) {
        let memo = player.begin(lane, &observation);
        self.episodes[lane] =
            Some(Episode { stage: 0, observation, collected: 0.0, undiscounted: 0.0, memo });
    }

    fn act(&self, player: &mut dyn Player) -> Vec<Option<usize>> {
        let open =
            self.episodes.iter().enumerate().filter_map(|(lane, episode)| Some((lane, episode.as_ref()?)));
        let (lanes, waiting): (Vec<usize>, Vec<Waiting>) =
            open.map(|(lane, episode)| (lane, Waiting { lane, memo: &episode.memo, x: episode.x() })).unzip();
        let mut actions = vec![None; self.episodes.len()];
        if !lanes.is_empty() {
            let chosen = player.act(&lanes, &waiting);
            assert_eq!(chosen.len(), lanes.len(), "actions, want one per waiting lane");
            lanes.into_iter().zip(chosen).for_each(|(lane, action)| actions[lane] = Some(action));
        }
        actions
    }

    /// One lane's transition; the episode, if it is over.
    fn observe(
        &mut self,
        lane: usize,
        action: usize,
        step: bqrl_mdp::env::Step,
        player: &mut dyn Player,
    ) -> Result<Option<Finished>, PlayError> {
        let episode = self.episodes[lane].take().expect("an action was taken in an episode");
        let reward = self.discount.powi(episode.stage as i32) * step.reward;
        let (stage, collected) = (episode.stage + 1, episode.collected + reward);
        let undiscounted = episode.undiscounted + step.reward;
        let next = Input { stage, observation: &step.observation, collected };
        player.observe(lane, &Transition { x: episode.x(), action, reward, next, end: step.end })?;
        if step.end == End::NotYet {
            let observation = step.observation;
            self.episodes[lane] = Some(Episode { stage, observation, collected, undiscounted, ..episode });
            return Ok(None);
        }
        Ok(Some(Finished { lane, episode_return: collected, undiscounted, length: stage }))
    }

    /// Everything that play resumes from. Where the environment cannot be saved in the middle of an episode, the open
    /// episodes are left out.
    pub fn save(&self) -> SavedPlay {
        let resumes = self.lanes.resumes_mid_episode();
        let episodes = if resumes { self.episodes.clone() } else { vec![None; self.episodes.len()] };
        SavedPlay { lanes: self.lanes.save(), episodes }
    }

    /// Restores what [`save`](Self::save) gave, into lanes of the same kind and number.
    pub fn restore(&mut self, saved: SavedPlay) -> Result<(), EnvError> {
        let n = self.episodes.len();
        if !self.lanes.resumes_mid_episode() {
            // Episodes start anew, in any number of lanes.
            self.episodes = vec![None; n];
            return self.lanes.restore(&saved.lanes);
        }
        if saved.episodes.len() != n {
            return Err(EnvError::new(format!(
                "the checkpoint has {} lanes, want {n}",
                saved.episodes.len()
            )));
        }
        self.lanes.restore(&saved.lanes)?;
        for (lane, episode) in saved.episodes.iter().enumerate() {
            if let Some(episode) = episode {
                let wrong = |message| EnvError::new(format!("the episode of lane {lane}: {message}"));
                episode.check(self.lanes.spec()).map_err(wrong)?;
                if !self.lanes.is_at(lane, episode.stage, &episode.observation) {
                    let (stage, seen) = (episode.stage, &episode.observation);
                    return Err(wrong(format!("the environment is not at stage {stage} with {seen:?}")));
                }
            }
        }
        self.episodes = saved.episodes;
        Ok(())
    }
}

impl SavedPlay {
    /// The memories of the open episodes.
    pub fn memos(&self) -> impl Iterator<Item = &Memo> {
        self.episodes.iter().flatten().map(|episode| &episode.memo)
    }
}

/// The largest rounding error of a sum of rewards, relative to the sum.
const ROUNDING: f64 = 1e-6;

impl Episode {
    fn x(&self) -> Input<'_> {
        Input { stage: self.stage, observation: &self.observation, collected: self.collected }
    }

    /// Refuses an episode that the environment cannot have had.
    fn check(&self, spec: &EnvSpec) -> Result<(), String> {
        let Self { stage, observation, collected, undiscounted, .. } = self;
        if *stage >= spec.horizon {
            return Err(format!("stage is {stage}, want one below {}", spec.horizon));
        }
        if !spec.observations.holds(observation) {
            return Err(format!("{observation:?} is not of {:?}", spec.observations));
        }
        let (low, high) = spec.reward_bounds.unwrap_or((f64::MIN, f64::MAX));
        let of_stages = |reward: f64| *stage as f64 * reward * (1.0 + ROUNDING);
        let (low, high) = (of_stages(low.min(0.0)) - ROUNDING, of_stages(high.max(0.0)) + ROUNDING);
        for (name, sum) in [("collected", collected), ("undiscounted", undiscounted)] {
            if !(sum.is_finite() && (low..=high).contains(sum)) {
                return Err(format!("{name} is {sum:?}, want a number from {low:?} to {high:?}"));
            }
        }
        Ok(())
    }
}

/// An agent that learns while it plays.
pub struct Learning<'a> {
    /// The agent.
    pub agent: &'a mut dyn Agent,
    /// How far training was when the tick began.
    pub clock: Clock,
}

impl Player for Learning<'_> {
    fn begin(&mut self, lane: usize, start: &Observation) -> Memo {
        self.agent.begin(&self.clock, lane, start)
    }

    fn act(&mut self, _lanes: &[usize], waiting: &[Waiting]) -> Vec<usize> {
        self.agent.act(&self.clock, waiting)
    }

    fn observe(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        self.agent.store(lane, transition)
    }

    fn tick_is_over(&mut self) -> Result<(), LearnError> {
        self.agent.learn(&self.clock)
    }
}

impl Play {
    /// One tick of training; the clock moves on by it.
    pub fn train(&mut self, agent: &mut dyn Agent, clock: &mut Clock) -> Result<Vec<Finished>, PlayError> {
        let (steps, finished) = self.tick(&mut Learning { agent, clock: *clock })?;
        clock.steps += steps as u64;
        clock.episodes += finished.len() as u64;
        Ok(finished)
    }
}

#[cfg(test)]
mod tests {
    use bqrl_mdp::env::{EnvSpec, ObservationSpace, Step};

    use super::*;

    /// Lanes that follow a script: lane i pays i + 1 per step and ends after `lengths[i]` of them.
    struct Scripted {
        spec: EnvSpec,
        lengths: Vec<usize>,
        stages: Vec<usize>,
        /// First observations come with the next step of all lanes.
        late: bool,
        /// Whether a checkpoint brings back episodes in their middle.
        resumes: bool,
        /// By lane, with `late`: an episode starts with the next step.
        starting: Vec<bool>,
        ticks: usize,
        /// The failure, and the call of `step` that has it, counted from 1.
        failure: Option<(usize, Failure)>,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Failure {
        /// The step of all lanes fails.
        Step,
        /// This lane starts an episode where a step was due.
        Start(usize),
        /// The first observation of this lane's next episode cannot be had.
        Reset(usize),
        /// This lane's reward is no number.
        Reward(usize),
    }

    fn scripted(lengths: &[usize], discount: f64) -> Scripted {
        let observations = ObservationSpace::Discrete { n: 100, ordered: false };
        Scripted {
            spec: EnvSpec { discount, ..EnvSpec::new("scripted", observations, 2, 10) },
            lengths: lengths.to_vec(),
            stages: vec![0; lengths.len()],
            late: false,
            resumes: false,
            starting: vec![false; lengths.len()],
            ticks: 0,
            failure: None,
        }
    }

    impl Scripted {
        fn fails(&self, failure: Failure) -> bool {
            self.failure == Some((self.ticks, failure))
        }
    }

    impl Lanes for Scripted {
        fn spec(&self) -> &EnvSpec {
            &self.spec
        }

        fn n_lanes(&self) -> usize {
            self.lengths.len()
        }

        fn reset(&mut self, lane: usize) -> Result<Option<Observation>, EnvError> {
            if self.fails(Failure::Reset(lane)) {
                self.failure = None;
                return Err(EnvError::new("no reset"));
            }
            (self.stages[lane], self.starting[lane]) = (0, self.late);
            Ok((!self.late).then_some(Observation::Index(0)))
        }

        fn step(&mut self, actions: &[Option<usize>]) -> Result<Vec<Seen>, EnvError> {
            self.ticks += 1;
            if self.fails(Failure::Step) {
                return Err(EnvError::new("no step"));
            }
            let mut seen = Vec::new();
            for (lane, action) in actions.iter().enumerate() {
                seen.push(if action.is_none() && std::mem::take(&mut self.starting[lane]) {
                    Seen::Start(Observation::Index(0))
                } else if action.is_none() {
                    Seen::Nothing
                } else if self.fails(Failure::Start(lane)) {
                    Seen::Start(Observation::Index(0))
                } else {
                    self.stages[lane] += 1;
                    let over = self.stages[lane] == self.lengths[lane];
                    let reward = if self.fails(Failure::Reward(lane)) { f64::NAN } else { (lane + 1) as f64 };
                    Seen::Step(Step {
                        observation: Observation::Index(self.stages[lane]),
                        reward,
                        end: if over { End::Terminated } else { End::NotYet },
                    })
                });
            }
            Ok(seen)
        }

        fn save(&self) -> SavedLanes {
            let number = |lengths: &[usize]| lengths.iter().map(|&length| vec![length as u64]).collect();
            SavedLanes { envs: if self.resumes { number(&self.stages) } else { vec![] }, rngs: vec![] }
        }

        fn resumes_mid_episode(&self) -> bool {
            self.resumes
        }

        fn restore(&mut self, saved: &SavedLanes) -> Result<(), EnvError> {
            self.stages.iter_mut().zip(&saved.envs).for_each(|(stage, env)| *stage = env[0] as usize);
            Ok(())
        }
    }

    /// Takes action 1 and writes down what it is shown.
    #[derive(Default)]
    struct Recorder {
        begun: Vec<usize>,
        /// The lanes that waited, tick by tick.
        waited: Vec<Vec<usize>>,
        /// Lane, stage, collected, reward, collected afterwards, and whether the episode ended.
        stored: Vec<(usize, usize, f64, f64, f64, bool)>,
        ticks: usize,
    }

    impl Player for Recorder {
        fn begin(&mut self, lane: usize, start: &Observation) -> Memo {
            assert_eq!(*start, Observation::Index(0));
            self.begun.push(lane);
            // So that a lane can be told by its memo.
            Memo { critic: Some(lane), ..Memo::default() }
        }

        fn act(&mut self, lanes: &[usize], waiting: &[Waiting]) -> Vec<usize> {
            for (lane, Waiting { memo, x, .. }) in lanes.iter().zip(waiting) {
                assert_eq!(memo.critic, Some(*lane));
                assert_eq!(*x.observation, Observation::Index(x.stage));
            }
            self.waited.push(lanes.to_vec());
            vec![1; lanes.len()]
        }

        fn observe(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
            let Transition { x, action, reward, next, end } = transition;
            crate::finite(*reward)?;
            assert_eq!((*action, next.stage), (1, x.stage + 1));
            assert_eq!(*next.observation, Observation::Index(next.stage));
            self.stored.push((lane, x.stage, x.collected, *reward, next.collected, end.is_over()));
            Ok(())
        }

        fn tick_is_over(&mut self) -> Result<(), LearnError> {
            self.ticks += 1;
            Ok(())
        }
    }

    #[test]
    fn rewards_are_discounted_by_their_stage_and_add_up_to_the_return() {
        // γ = ½, three rewards of 1: ½^h is 1, ½, ¼, so that c is 0, 1, 1½ and the return 1¾; undiscounted it is 3.
        let (mut play, mut player) = (Play::new(Box::new(scripted(&[3], 0.5))), Recorder::default());
        let ended: Vec<_> = (0..3).flat_map(|_| play.tick(&mut player).unwrap().1).collect();
        assert_eq!(
            player.stored,
            [(0, 0, 0.0, 1.0, 1.0, false), (0, 1, 1.0, 0.5, 1.5, false), (0, 2, 1.5, 0.25, 1.75, true)]
        );
        assert_eq!(ended, [Finished { lane: 0, episode_return: 1.75, undiscounted: 3.0, length: 3 }]);
        // The next episode starts from nothing.
        play.tick(&mut player).unwrap();
        assert_eq!(player.stored[3], (0, 0, 0.0, 1.0, 1.0, false));
        assert_eq!((player.begun, player.ticks), (vec![0, 0], 4));
    }

    #[test]
    fn lanes_end_and_begin_on_their_own() {
        let (mut play, mut player) = (Play::new(Box::new(scripted(&[1, 3], 1.0))), Recorder::default());
        let steps: usize = (0..3).map(|_| play.tick(&mut player).unwrap().0).sum();
        assert_eq!((steps, player.begun), (6, vec![0, 1, 0, 0]));
        let of_second: Vec<_> = player.stored.iter().filter(|row| row.0 == 1).copied().collect();
        assert_eq!(
            of_second,
            [(1, 0, 0.0, 2.0, 2.0, false), (1, 1, 2.0, 2.0, 4.0, false), (1, 2, 4.0, 2.0, 6.0, true)]
        );
    }

    #[test]
    fn an_environment_may_show_its_first_observation_with_the_next_step() {
        let lanes = Scripted { late: true, ..scripted(&[2, 3], 1.0) };
        let (mut play, mut player) = (Play::new(Box::new(lanes)), Recorder::default());
        // Nobody waits in the first tick: it brings the first observations. Lane 0 then plays two steps and starts again
        // while lane 1 takes its third.
        let steps: Vec<usize> = (0..5).map(|_| play.tick(&mut player).unwrap().0).collect();
        assert_eq!(steps, [0, 2, 2, 1, 1]);
        assert_eq!(player.waited, [vec![0, 1], vec![0, 1], vec![1], vec![0]]);
        assert_eq!(player.begun, [0, 1, 0, 1]);
        // A start is no transition: nothing is stored of it.
        assert_eq!(
            player.stored.iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (0, 0)]
        );
    }

    #[test]
    fn a_closed_lane_ends_its_episode_and_begins_no_other() {
        for late in [false, true] {
            let lanes = Scripted { late, ..scripted(&[2, 2], 1.0) };
            let (mut play, mut player) = (Play::new(Box::new(lanes)), Recorder::default());
            let mut finished = Vec::new();
            if late {
                play.tick(&mut player).unwrap();
            }
            play.tick(&mut player).unwrap();
            play.close(0);
            (0..6).for_each(|_| finished.extend(play.tick(&mut player).unwrap().1));
            let of = |lane| finished.iter().filter(|episode| episode.lane == lane).count();
            assert_eq!((of(0), player.begun.iter().filter(|&&lane| lane == 0).count()), (1, 1));
            assert!(of(1) > 1);
            play.close(1);
            (0..3).for_each(|_| drop(play.tick(&mut player).unwrap()));
            assert!(!play.is_open());
            let stored = player.stored.len();
            assert_eq!(play.tick(&mut player).unwrap(), (0, vec![]));
            assert_eq!(player.stored.len(), stored);
        }
    }

    #[test]
    fn a_closed_lane_stays_closed_when_the_environment_restarts_it() {
        // The first observation is on its way when the lane is closed.
        let lanes = Scripted { late: true, starting: vec![true], ..scripted(&[2], 1.0) };
        let (mut play, mut player) = (Play::new(Box::new(lanes)), Recorder::default());
        play.close(0);
        assert_eq!(play.tick(&mut player).unwrap(), (0, vec![]));
        assert!(player.begun.is_empty() && !play.is_open());
    }

    #[test]
    fn an_environment_that_fails_says_so_and_what_was_stored_stays() {
        // The third step of all lanes fails. What the lanes stored before stays, and play can go on.
        let lanes = Scripted { failure: Some((3, Failure::Step)), ..scripted(&[9, 9], 1.0) };
        let (mut play, mut player) = (Play::new(Box::new(lanes)), Recorder::default());
        (0..2).for_each(|_| drop(play.tick(&mut player).unwrap()));
        let before = player.stored.clone();
        let error = play.tick(&mut player).unwrap_err();
        assert!(matches!(&error, PlayError::Env(_)) && error.to_string() == "no step", "{error}");
        assert_eq!((&player.stored, before.len(), player.ticks), (&before, 4, 2));
        assert_eq!(play.tick(&mut player).unwrap().0, 2);
        assert_eq!(player.stored[4..], [(0, 2, 2.0, 1.0, 3.0, false), (1, 2, 4.0, 2.0, 6.0, false)]);
    }

    #[test]
    fn a_lane_that_cannot_start_leaves_the_episodes_of_the_others_open() {
        // Both lanes end with the first step; then lane 1 cannot be reset, once.
        let lanes = Scripted { failure: Some((1, Failure::Reset(1))), ..scripted(&[1, 1], 1.0) };
        let (mut play, mut player) = (Play::new(Box::new(lanes)), Recorder::default());
        play.tick(&mut player).unwrap();
        assert_eq!(play.tick(&mut player).unwrap_err().to_string(), "no reset");
        assert!(play.is_open());
        assert_eq!((player.stored.len(), &player.begun[..]), (2, &[0, 1, 0][..]));
        // Lane 0 continues its episode; lane 1 begins now.
        assert_eq!(play.tick(&mut player).unwrap().0, 2);
        assert_eq!((player.stored.len(), &player.begun[..]), (4, &[0, 1, 0, 1][..]));
    }

    #[test]
    fn a_failure_of_one_lane_does_not_take_back_what_lanes_before_it_stored() {
        for (failure, message) in [
            (Failure::Start(1), "lane 1 started an episode instead of a step"),
            (Failure::Reward(1), "the reward must be finite, got NaN"),
        ] {
            let lanes = Scripted { failure: Some((2, failure)), ..scripted(&[9, 9], 1.0) };
            let (mut play, mut player) = (Play::new(Box::new(lanes)), Recorder::default());
            play.tick(&mut player).unwrap();
            assert_eq!(play.tick(&mut player).unwrap_err().to_string(), message);
            let stored: Vec<_> = player.stored.iter().map(|row| (row.0, row.1)).collect();
            assert_eq!(stored, [(0, 0), (1, 0), (0, 1)]);
            // Lane 0 has moved on and lane 1 has not: both episodes are given up, and new ones begin.
            assert!(!play.is_open());
            play.tick(&mut player).unwrap();
            assert_eq!(player.stored.last().map(|row| (row.0, row.1)), Some((1, 0)));
        }
    }

    #[test]
    fn giving_up_starts_new_episodes_in_all_lanes() {
        let (mut play, mut player) = (Play::new(Box::new(scripted(&[9, 9], 1.0))), Recorder::default());
        play.tick(&mut player).unwrap();
        play.abandon();
        assert!(!play.is_open());
        assert_eq!(play.tick(&mut player).unwrap(), (2, vec![]));
        assert_eq!(player.begun, [0, 1, 0, 1]);
        assert_eq!(player.stored[2..], [(0, 0, 0.0, 1.0, 1.0, false), (1, 0, 0.0, 2.0, 2.0, false)]);
    }

    #[test]
    fn restored_episodes_go_on_or_start_anew_as_the_environment_can() {
        for resumes in [true, false] {
            let make = |lengths: &[usize]| {
                Play::new(Box::new(Scripted { resumes, ..scripted(lengths, 1.0) }) as Box<dyn Lanes>)
            };
            let (mut play, mut player) = (make(&[9, 9]), Recorder::default());
            (0..2).for_each(|_| drop(play.tick(&mut player).unwrap()));
            let saved = play.save();
            assert_eq!(saved.episodes.iter().all(Option::is_some), resumes);
            assert_eq!(saved.episodes.iter().all(Option::is_none), !resumes);

            let (mut again, mut player) = (make(&[9, 9]), Recorder::default());
            again.tick(&mut player).unwrap();
            again.restore(saved.clone()).unwrap();
            let mut player = Recorder::default();
            again.tick(&mut player).unwrap();
            if resumes {
                assert!(player.begun.is_empty());
                assert_eq!(player.stored, [(0, 2, 2.0, 1.0, 3.0, false), (1, 2, 4.0, 2.0, 6.0, false)]);
            } else {
                assert_eq!(player.begun, [0, 1]);
                assert_eq!(player.stored, [(0, 0, 0.0, 1.0, 1.0, false), (1, 0, 0.0, 2.0, 2.0, false)]);
            }
            // Episodes that go on need their lanes; new ones start in any number of them.
            assert_eq!(make(&[9]).restore(saved).is_err(), resumes);
        }
    }
}
