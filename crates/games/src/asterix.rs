//! Asterix: collect gold, avoid enemies.
//!
//! Eight lanes, rows 1 to 8, hold at most one traveller each: an enemy, or gold. The player starts at (5, 5) and moves in four
//! directions within rows 1 to 8. Gold that is touched gives one point and disappears; an enemy ends the game.
//!
//! 1. Every `spawn_interval` steps (10 at first) a traveller enters: from the left or from the right, gold with probability
//!    1/3, in one of the free lanes. If no lane is free, none enters.
//! 2. The player moves, and touches whoever is there.
//! 3. Every `move_interval` steps (5 at first) all travellers move one cell. At the end of the lane they leave. The player
//!    touches whoever arrives.
//!
//! Ramping: every 102 steps `spawn_interval` falls by 1, and every second time `move_interval` too, both down to 1.

use crate::draws::Draws;
use crate::plane::{Plane, SIDE};
use crate::rules::{Action, Look, Numbers, Outcome, Rules};

const LANES: u8 = 8;
const LAST: u8 = SIDE - 1;
const SPAWN_INTERVAL: u8 = 10;
const MOVE_INTERVAL: u8 = 5;
/// Steps between two changes of the difficulty, less one.
const RAMP_INTERVAL: u8 = 100;

/// A position of Asterix. Travellers are columns by lane and sets of lanes, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asterix {
    x: u8,
    y: u8,
    columns: [u8; LANES as usize],
    taken: u8,
    rightward: u8,
    gold: u8,
    spawn_interval: u8,
    spawn_timer: u8,
    move_interval: u8,
    move_timer: u8,
    /// Counts down and stays one step at −1, which is 255 here.
    ramp_timer: u8,
    /// Whether the next change of the difficulty also speeds the travellers up.
    ramp_moves: bool,
}

impl Asterix {
    fn enter(&mut self, draws: &mut impl Draws) {
        let rightward = draws.coin();
        let gold = draws.uniform() < 1.0 / 3.0;
        let free = LANES - self.taken.count_ones() as u8;
        if free == 0 {
            return;
        }
        let mut nth = draws.below(free.into());
        for lane in 0..LANES {
            let bit = 1 << lane;
            if self.taken & bit != 0 {
                continue;
            }
            if nth == 0 {
                self.taken |= bit;
                self.columns[lane as usize] = if rightward { 0 } else { LAST };
                self.rightward = self.rightward & !bit | u8::from(rightward) << lane;
                self.gold = self.gold & !bit | u8::from(gold) << lane;
                return;
            }
            nth -= 1;
        }
    }

    /// The player meets the traveller of its lane, if there is one in its column.
    fn touch(&mut self, outcome: &mut Outcome) {
        let lane = self.y - 1;
        let bit = 1 << lane;
        if self.taken & bit == 0 || self.columns[lane as usize] != self.x {
            return;
        }
        if self.gold & bit == 0 {
            outcome.over = true;
        } else {
            outcome.reward += 1;
            self.remove(bit);
        }
    }

    fn remove(&mut self, bit: u8) {
        self.taken &= !bit;
        self.rightward &= !bit;
        self.gold &= !bit;
    }

    fn travel(&mut self) {
        let mut taken = self.taken;
        while taken != 0 {
            let lane = taken.trailing_zeros() as usize;
            let bit = 1 << lane;
            taken &= !bit;
            let rightward = self.rightward & bit != 0;
            let end = if rightward { LAST } else { 0 };
            if self.columns[lane] == end {
                self.remove(bit);
            } else if rightward {
                self.columns[lane] += 1;
            } else {
                self.columns[lane] -= 1;
            }
        }
    }

    fn ramp(&mut self) {
        if self.spawn_interval == 1 && self.move_interval == 1 {
            return;
        }
        if self.ramp_timer <= RAMP_INTERVAL {
            self.ramp_timer = self.ramp_timer.wrapping_sub(1);
            return;
        }
        if self.ramp_moves && self.move_interval > 1 {
            self.move_interval -= 1;
        }
        if self.spawn_interval > 1 {
            self.spawn_interval -= 1;
        }
        self.ramp_moves = !self.ramp_moves;
        self.ramp_timer = RAMP_INTERVAL;
    }
}

impl Rules for Asterix {
    type Planes = [Plane; 4];
    type Words = [u64; 7];

    const LOOKS: &'static [Look] = &[
        Look::thing("player", '@', [86, 180, 233]),
        Look::thing("enemy", 'x', [213, 94, 0]),
        Look::mark("trail", '.', [130, 130, 130]),
        Look::thing("gold", '$', [240, 228, 66]),
    ];
    const MINIMAL: &'static [Action] = &[Action::Stay, Action::Left, Action::Up, Action::Right, Action::Down];
    const MOST_POINTS: u32 = 2;

    fn start(_: &mut impl Draws) -> Self {
        Self {
            x: 5,
            y: 5,
            columns: [0; LANES as usize],
            taken: 0,
            rightward: 0,
            gold: 0,
            spawn_interval: SPAWN_INTERVAL,
            spawn_timer: SPAWN_INTERVAL,
            move_interval: MOVE_INTERVAL,
            move_timer: MOVE_INTERVAL,
            ramp_timer: RAMP_INTERVAL,
            ramp_moves: false,
        }
    }

    #[inline]
    fn step(&mut self, action: Action, ramping: bool, draws: &mut impl Draws) -> Outcome {
        if self.spawn_timer == 0 {
            self.enter(draws);
            self.spawn_timer = self.spawn_interval;
        }
        match action {
            Action::Left => self.x = self.x.saturating_sub(1),
            Action::Right => self.x = (self.x + 1).min(LAST),
            Action::Up => self.y = (self.y - 1).max(1),
            Action::Down => self.y = (self.y + 1).min(LANES),
            Action::Stay | Action::Fire => {}
        }
        let mut outcome = Outcome { reward: 0, over: false };
        self.touch(&mut outcome);
        if self.move_timer == 0 {
            self.move_timer = self.move_interval;
            self.travel();
            self.touch(&mut outcome);
        }
        self.spawn_timer -= 1;
        self.move_timer -= 1;
        if ramping {
            self.ramp();
        }
        outcome
    }

    #[inline]
    fn planes(&self) -> [Plane; 4] {
        let [mut enemies, mut trails, mut gold] = [Plane::EMPTY; 3];
        let mut taken = self.taken;
        while taken != 0 {
            let lane = taken.trailing_zeros() as u8;
            let bit = 1 << lane;
            taken &= !bit;
            let (x, y) = (self.columns[lane as usize], lane + 1);
            let here = Plane::cell(x, y);
            if self.gold & bit == 0 {
                enemies = enemies.or(here);
            } else {
                gold = gold.or(here);
            }
            let behind = if self.rightward & bit == 0 { x + 1 } else { x.wrapping_sub(1) };
            if behind < SIDE {
                trails = trails.or(Plane::cell(behind, y));
            }
        }
        [Plane::cell(self.x, self.y), enemies, trails, gold]
    }

    fn save(&self) -> Vec<u64> {
        let Self { x, y, columns, taken, rightward, gold, .. } = *self;
        let Self { spawn_interval, spawn_timer, move_interval, move_timer, ramp_timer, ramp_moves, .. } =
            *self;
        let mut numbers: Vec<u8> = vec![x, y, taken, rightward, gold];
        numbers.extend([spawn_interval, spawn_timer, move_interval, move_timer, ramp_timer]);
        numbers.push(ramp_moves.into());
        numbers.extend(columns);
        numbers.into_iter().map(u64::from).collect()
    }

    fn restore(numbers: &mut Numbers) -> Option<Self> {
        let (x, y) = (numbers.within(0, LAST)?, numbers.within(1, LANES)?);
        let taken = numbers.within(0, u8::MAX)?;
        let (rightward, gold) = (numbers.within(0, taken)?, numbers.within(0, taken)?);
        let spawn_interval = numbers.within(1, SPAWN_INTERVAL)?;
        let spawn_timer = numbers.within(0, SPAWN_INTERVAL)?;
        let move_interval = numbers.within(1, MOVE_INTERVAL)?;
        let move_timer = numbers.within(0, MOVE_INTERVAL)?;
        let ramp_timer =
            numbers.within(0, u8::MAX).filter(|&timer| timer <= RAMP_INTERVAL || timer == u8::MAX)?;
        let ramp_moves = numbers.flag()?;
        let mut columns = [0; LANES as usize];
        for column in &mut columns {
            *column = numbers.within(0, LAST)?;
        }
        let fits = rightward & !taken == 0 && gold & !taken == 0;
        fits.then_some(Self {
            x,
            y,
            columns,
            taken,
            rightward,
            gold,
            spawn_interval,
            spawn_timer,
            move_interval,
            move_timer,
            ramp_timer,
            ramp_moves,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Script;

    #[test]
    fn gold_of_the_players_lane_arrives_at_step_31_and_an_enemy_too() {
        // A traveller enters at step 11 from the left in row 5 (⌊0.55 · 8⌋ = 4) and moves at steps 11, 16, 21, 26, 31, so that it is
        // then at 5, where the player waits. Draws: direction, kind, lane.
        for (kind, outcome) in
            [(0.0, Outcome { reward: 1, over: false }), (0.9, Outcome { reward: 0, over: true })]
        {
            let draws = [0.0, kind, 0.55];
            let mut draws = Script::new(&draws);
            let mut game = Asterix::start(&mut draws);
            for _ in 0..30 {
                let before = game.step(Action::Stay, true, &mut draws);
                assert_eq!(before, Outcome { reward: 0, over: false });
            }
            assert_eq!(game.step(Action::Stay, true, &mut draws), outcome);
        }
    }

    #[test]
    fn the_game_speeds_up_every_102_steps_unless_it_must_not() {
        let mut game = Asterix::start(&mut Script::new(&[]));
        for (steps, spawn, moves) in [(100, 10, 5), (1, 10, 5), (1, 9, 5), (102, 8, 4), (102, 7, 4)] {
            for _ in 0..steps {
                game.ramp();
            }
            assert_eq!((game.spawn_interval, game.move_interval), (spawn, moves));
        }
        let mut calm = Asterix::start(&mut Script::new(&[]));
        for _ in 0..1000 {
            calm.step(Action::Stay, false, &mut Script::new(&[0.0, 0.0]));
        }
        assert_eq!((calm.spawn_interval, calm.move_interval), (10, 5));
    }
}
