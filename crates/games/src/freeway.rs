//! Freeway: a chicken crosses eight lanes of traffic.
//!
//! The chicken walks in column 4 and starts in row 9. It can take a step every third time. Row 0 is the goal: one point, all cars
//! get new speeds, and the chicken is back in row 9. A car that is in its cell sends it back to row 9. The game lasts 2501
//! steps: a clock of 2500 that must fall below 0. There is no ramping.
//!
//! Lane k, row k + 1, has one car, which starts in column 0. It moves one cell every v + 1 steps, v = 1 … 5, to the right or to
//! the left, and the board is a ring for it. Its plane of speed shows the cell behind it. New speeds restart the cars' timers and leave
//! the cars where they are.
//!
//! 1. The chicken moves. At the goal, the lanes get new speeds: eight draws of v, then eight of the direction.
//! 2. Lane by lane, from the top: a car in the chicken's cell sends it back, then the car's timer runs, and a car that arrives in the
//!    chicken's cell sends it back.

use crate::draws::Draws;
use crate::plane::{Plane, SIDE};
use crate::rules::{Action, Look, Numbers, Outcome, Rules};

const LANES: usize = 8;
const LAST: u8 = SIDE - 1;
/// The chicken's column.
const COLUMN: u8 = 4;
/// Steps between two steps of the chicken.
const PATIENCE: u8 = 3;
const CLOCK: u16 = 2500;
const SPEEDS: usize = 5;

/// A position of Freeway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeway {
    /// The chicken's row.
    row: u8,
    /// Steps until it can move again.
    rest: u8,
    /// Steps left.
    clock: u16,
    columns: [u8; LANES],
    /// Steps until the car moves.
    timers: [u8; LANES],
    /// v: 1 is fast, 5 is slow.
    speeds: [u8; LANES],
    rightward: [bool; LANES],
}

impl Freeway {
    fn draw_speeds(&mut self, draws: &mut impl Draws) {
        for speed in &mut self.speeds {
            *speed = 1 + draws.below(SPEEDS) as u8;
        }
        for rightward in &mut self.rightward {
            *rightward = !draws.coin();
        }
        self.timers = self.speeds;
    }
}

/// The next column on the ring.
#[inline]
fn along(column: u8, rightward: bool) -> u8 {
    let next = if rightward { column + 1 } else { column + LAST };
    if next < SIDE { next } else { next - SIDE }
}

impl Rules for Freeway {
    type Planes = [Plane; 7];
    type Words = [u64; 11];

    const LOOKS: &'static [Look] = &[
        Look::thing("chicken", '@', [86, 180, 233]),
        Look::thing("car", '#', [213, 94, 0]),
        Look::mark("speed 1", '1', [240, 228, 66]),
        Look::mark("speed 2", '2', [205, 190, 60]),
        Look::mark("speed 3", '3', [165, 152, 55]),
        Look::mark("speed 4", '4', [125, 115, 50]),
        Look::mark("speed 5", '5', [90, 82, 45]),
    ];
    const MINIMAL: &'static [Action] = &[Action::Stay, Action::Up, Action::Down];
    const MOST_POINTS: u32 = 1;

    fn start(draws: &mut impl Draws) -> Self {
        let mut game = Self {
            row: LAST,
            rest: PATIENCE,
            clock: CLOCK,
            columns: [0; LANES],
            timers: [0; LANES],
            speeds: [0; LANES],
            rightward: [false; LANES],
        };
        game.draw_speeds(draws);
        game
    }

    #[inline]
    fn step(&mut self, action: Action, _ramping: bool, draws: &mut impl Draws) -> Outcome {
        if self.rest == 0 {
            let walked = match action {
                Action::Up => Some(self.row.saturating_sub(1)),
                Action::Down => Some((self.row + 1).min(LAST)),
                _ => None,
            };
            if let Some(row) = walked {
                (self.row, self.rest) = (row, PATIENCE);
            }
        }
        let reward = u32::from(self.row == 0);
        if self.row == 0 {
            self.draw_speeds(draws);
            self.row = LAST;
        }
        // Only the car of the chicken's lane can hit it, before or after it moves.
        let lane = usize::from(self.row - 1);
        let in_column = |game: &Self| game.columns.get(lane) == Some(&COLUMN);
        let was_hit = in_column(self);
        for lane in 0..LANES {
            let moves = self.timers[lane] == 0;
            self.timers[lane] = if moves { self.speeds[lane] } else { self.timers[lane] - 1 };
            let next = along(self.columns[lane], self.rightward[lane]);
            self.columns[lane] = if moves { next } else { self.columns[lane] };
        }
        if was_hit || in_column(self) {
            self.row = LAST;
        }
        self.rest = self.rest.saturating_sub(1);
        let over = self.clock == 0;
        self.clock = self.clock.saturating_sub(1);
        Outcome { reward, over }
    }

    #[inline]
    fn planes(&self) -> [Plane; 7] {
        // Lanes 0 to 3 and 4 to 7 as 40 bits each: the cars, and the cells behind those of each speed.
        let mut halves = [[0_u64; 2]; 1 + SPEEDS];
        for lane in 0..LANES {
            let (x, half, shift) = (self.columns[lane], lane / 4, lane as u8 % 4 * SIDE);
            halves[0][half] |= 1 << (shift + x);
            halves[self.speeds[lane] as usize][half] |= 1 << (shift + along(x, !self.rightward[lane]));
        }
        let plane = |[low, high]: [u64; 2]| {
            Plane::from_bits(u128::from(low) << SIDE | u128::from(high) << (5 * SIDE))
        };
        let [cars, one, two, three, four, five] = halves.map(plane);
        [Plane::cell(COLUMN, self.row), cars, one, two, three, four, five]
    }

    fn save(&self) -> Vec<u64> {
        let mut numbers = vec![self.row.into(), self.rest.into(), self.clock.into()];
        numbers.extend(self.columns.map(u64::from));
        numbers.extend(self.timers.map(u64::from));
        numbers.extend(self.speeds.map(u64::from));
        numbers.extend(self.rightward.map(u64::from));
        numbers
    }

    fn restore(numbers: &mut Numbers) -> Option<Self> {
        let (row, rest) = (numbers.within(1, LAST)?, numbers.within(0, PATIENCE)?);
        let clock = numbers.below(u64::from(CLOCK) + 1)? as u16;
        let mut lanes = |low, high| {
            let mut lanes = [0; LANES];
            for lane in &mut lanes {
                *lane = numbers.within(low, high)?;
            }
            Some(lanes)
        };
        let (columns, timers) = (lanes(0, LAST)?, lanes(0, SPEEDS as u8)?);
        let (speeds, rightward) = (lanes(1, SPEEDS as u8)?, lanes(0, 1)?.map(|flag| flag == 1));
        Some(Self { row, rest, clock, columns, timers, speeds, rightward })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Script;

    /// Eight slow cars, v = 5, to the right or to the left.
    fn slow(direction: f64) -> Freeway {
        let draws = [[0.99; LANES], [direction; LANES]].concat();
        Freeway::start(&mut Script::new(&draws))
    }

    fn up(game: &mut Freeway, steps: usize) -> Vec<u32> {
        (0..steps).map(|_| game.step(Action::Up, true, &mut Script::new(&[])).reward).collect()
    }

    #[test]
    fn an_undisturbed_chicken_crosses_at_step_28() {
        // It walks at steps 4, 7, …, 28: nine rows. Cars move to the left at steps 6, 12, 18, 24, from column 0 to 9, 8, 7, 6.
        let mut game = slow(0.0);
        let rewards = up(&mut game, 28);
        assert_eq!(rewards.iter().position(|&reward| reward == 1), Some(27));
        assert_eq!((game.row, game.columns), (9, [6; LANES]));
    }

    #[test]
    fn a_car_sends_the_chicken_back() {
        // Cars move to the right at steps 6, 12, 18, 24 and are then in column 4. The chicken has walked seven rows by then.
        let mut game = slow(0.5);
        up(&mut game, 23);
        assert_eq!((game.row, game.columns), (2, [3; LANES]));
        assert_eq!(up(&mut game, 1), [0]);
        assert_eq!((game.row, game.columns), (9, [4; LANES]));
    }

    #[test]
    fn a_game_has_2501_steps() {
        let mut game = slow(0.0);
        let mut step = || game.step(Action::Down, true, &mut Script::new(&[]));
        assert!((0..2500).all(|_| !step().over));
        assert!(step().over);
    }

    #[test]
    fn the_plane_of_a_speed_shows_the_cell_behind() {
        let mut game = slow(0.5);
        (game.speeds[2], game.columns[2]) = (3, 7);
        let planes = game.planes();
        assert!(planes[1].has(7, 3) && planes[4].has(6, 3));
        // A ring: behind column 0 is column 9.
        assert!(planes[1].has(0, 1) && planes[6].has(9, 1));
        assert_eq!(planes[6].count(), 7);
    }
}
