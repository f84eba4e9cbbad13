//! An agent that is learned with in one place and asked in another.
//!
//! The lock is held for one call at a time and never while Python runs. So a callback may save the model in the middle of
//! `learn`, an environment may ask the model that plays in it, and two threads may use one model. Whoever waits is next:
//! learning takes the lock again at once, and would otherwise leave nobody a turn.
//!
//! A save wants more than the agent: it must fit the progress and the lanes. On a table, where no Python runs in between, a
//! whole tick is one turn ([`Turns`]), so that a save of another thread sees the state between two ticks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bqrl_agents::{
    Agent, Input, LearnError, Memo, Moments, Objective, Part, Prediction, RestoreError, Served, Target,
    Transition, Waiting,
};
use bqrl_math::buffer::Buffer;
use bqrl_math::schedule::Clock;
use bqrl_mdp::evaluate::Choice;
use bqrl_mdp::trajectory::Observation;

/// A handle of an agent.
#[derive(Clone)]
pub struct Shared {
    agent: Arc<Turns<Box<dyn Agent>>>,
    /// Actions of a log, in the order of its decisions; the agent learns from them instead of its own.
    log: Option<Arc<Mutex<std::vec::IntoIter<usize>>>>,
}

/// A lock that nobody takes twice while another waits.
#[derive(Default)]
pub struct Turns<T> {
    /// Held by whoever has it next.
    next: Mutex<()>,
    inside: Mutex<T>,
}

impl<T> Turns<T> {
    /// The contents. A panic in another thread leaves them as they were then; there is nothing better to give.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Takes an agent over.
    pub fn new(agent: Box<dyn Agent>) -> Self {
        Self { agent: Arc::new(Turns { next: Mutex::default(), inside: Mutex::new(agent) }), log: None }
    }

    /// The same agent, that takes the actions of a log.
    pub fn following(&self, actions: Vec<usize>) -> Self {
        Self { agent: self.agent.clone(), log: Some(Arc::new(Mutex::new(actions.into_iter()))) }
    }

    /// The agent.
    pub fn lock(&self) -> MutexGuard<'_, Box<dyn Agent>> {
        self.agent.lock()
    }
}

impl Agent for Shared {
    fn begin(&mut self, clock: &Clock, lane: usize, start: &Observation) -> Memo {
        self.lock().begin(clock, lane, start)
    }

    fn act(&mut self, clock: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        if let Some(log) = &self.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            return waiting.iter().map(|_| log.next().expect("a log has an action per decision")).collect();
        }
        self.lock().act(clock, waiting)
    }

    fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        self.lock().store(lane, transition)
    }

    fn learn(&mut self, clock: &Clock) -> Result<(), LearnError> {
        self.lock().learn(clock)
    }

    fn serve(&self, levels: &[Buffer], objective: Objective) -> Served {
        self.lock().serve(levels, objective)
    }

    fn decide(&self, memo: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        self.lock().decide(memo, x, choice);
    }

    fn decide_all(&self, asked: &[(&Memo, Input)]) -> Vec<Choice> {
        self.lock().decide_all(asked)
    }

    fn predictions(&self, x: &Input) -> Vec<Prediction> {
        self.lock().predictions(x)
    }

    fn is_stochastic(&self) -> bool {
        self.lock().is_stochastic()
    }

    fn exploration(&self, clock: &Clock) -> Option<f64> {
        self.lock().exploration(clock)
    }

    fn updates(&self) -> u64 {
        self.lock().updates()
    }

    fn loss(&self) -> Option<f64> {
        self.lock().loss()
    }

    fn chance(&self, target: &Target) -> Option<f64> {
        self.lock().chance(target)
    }

    fn moments(&self) -> Option<Moments> {
        self.lock().moments()
    }

    fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        self.lock().save(has)
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        self.lock().restore(file)
    }

    fn check_memo(&self, memo: &Memo) -> Result<(), RestoreError> {
        self.lock().check_memo(memo)
    }

    fn weights(&self) -> Vec<u8> {
        self.lock().weights()
    }
}
