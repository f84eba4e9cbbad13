//! Episodes that are not over yet, one per lane: agents that learn from whole episodes keep their steps here.

/// The steps so far of every lane's open episode.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenEpisodes<T>(Vec<Vec<T>>);

impl<T> Default for OpenEpisodes<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> OpenEpisodes<T> {
    /// Adds a step of a lane. Returns the whole episode if the step was its last.
    pub fn step(&mut self, lane: usize, step: T, is_last: bool) -> Option<Vec<T>> {
        if self.0.len() <= lane {
            self.0.resize_with(lane + 1, Vec::new);
        }
        self.0[lane].push(step);
        is_last.then(|| std::mem::take(&mut self.0[lane]))
    }

    /// Forgets the steps of a lane: its episode was given up and a new one starts.
    pub fn restart(&mut self, lane: usize) {
        if let Some(steps) = self.0.get_mut(lane) {
            steps.clear();
        }
    }

    /// All open steps, lane after lane, and how many each lane has: how they are saved.
    pub fn columns(&self) -> (Vec<&T>, Vec<u64>) {
        (self.0.iter().flatten().collect(), self.0.iter().map(|steps| steps.len() as u64).collect())
    }

    /// Open episodes from their columns; `None` where the lengths do not add up.
    pub fn from_columns(steps: Vec<T>, lengths: &[u64]) -> Option<Self> {
        let total = lengths.iter().try_fold(0_u64, |sum, &length| sum.checked_add(length))?;
        if total != steps.len() as u64 {
            return None;
        }
        let mut steps = steps.into_iter();
        Some(Self(lengths.iter().map(|&length| steps.by_ref().take(length as usize).collect()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_take_turns_and_each_gets_its_own_episode_back() {
        let mut open = OpenEpisodes::default();
        assert_eq!(open.step(0, 'a', false), None);
        assert_eq!(open.step(2, 'x', false), None);
        assert_eq!(open.step(0, 'b', true), Some(vec!['a', 'b']));
        assert_eq!(open.step(0, 'c', false), None);
        let (steps, lengths) = open.columns();
        assert_eq!((steps.as_slice(), lengths.as_slice()), (&[&'c', &'x'][..], &[1, 0, 1][..]));
        let again = OpenEpisodes::from_columns(vec!['c', 'x'], &[1, 0, 1]).unwrap();
        assert_eq!(again, open);
        assert!(OpenEpisodes::from_columns(vec!['c'], &[1, 1]).is_none());
        open.restart(0);
        assert_eq!(open.step(0, 'd', true), Some(vec!['d']));
    }
}
