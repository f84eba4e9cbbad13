//! The memory of a full replay, computed before anything is allocated, and compared with that of the machine.

use std::fs;

use bqrl_mdp::env::ObservationSpace;
use thiserror::Error;

use super::Replay;
use super::rows::{HEADER, Layout};

/// A replay that would not fit into memory.
#[derive(Clone, Debug, Error, PartialEq)]
#[error(
    "a replay of {capacity} transitions needs {:.1} GB, this machine has {:.1} GB: \
     lower agent.replay_capacity to at most {at_most}",
    *bytes as f64 / 1e9, *available as f64 / 1e9
)]
pub struct ReplayTooLarge {
    /// Transitions asked for.
    pub capacity: usize,
    /// Their memory in bytes.
    pub bytes: u64,
    /// Bytes that this process may use.
    pub available: u64,
    /// Transitions that would fit.
    pub at_most: u64,
}

/// Bytes of a full replay. Not counted: successors after a cut-off, and stacks that do not shift.
pub fn memory(capacity: usize, n_lanes: usize, observations: &ObservationSpace) -> u64 {
    let (row, spare) = row_and_spare(n_lanes, observations);
    let rows = (capacity as u64).div_ceil(n_lanes as u64).saturating_mul(n_lanes as u64);
    rows.saturating_mul(row).saturating_add(spare)
}

/// Bytes of a transition, and of the slots beyond the capacity.
fn row_and_spare(n_lanes: usize, observations: &ObservationSpace) -> (u64, u64) {
    let layout = Layout::of(observations);
    let row = (HEADER + layout.group()) as u64;
    (row, row * (n_lanes * (layout.stack() - 1)) as u64)
}

impl Replay {
    /// Refuses a replay that is larger than the memory of this machine, or than what its control group may use. Where
    /// neither is known (other systems than Linux), nothing is refused.
    pub fn fits(
        capacity: usize,
        n_lanes: usize,
        observations: &ObservationSpace,
    ) -> Result<(), ReplayTooLarge> {
        machine().map_or(Ok(()), |available| fits_into(available, capacity, n_lanes, observations))
    }
}

fn fits_into(
    available: u64,
    capacity: usize,
    n_lanes: usize,
    observations: &ObservationSpace,
) -> Result<(), ReplayTooLarge> {
    let bytes = memory(capacity, n_lanes, observations);
    if bytes <= available {
        return Ok(());
    }
    let (row, spare) = row_and_spare(n_lanes, observations);
    let lanes = n_lanes as u64;
    let at_most = available.saturating_sub(spare) / row / lanes * lanes;
    Err(ReplayTooLarge { capacity, bytes, available, at_most })
}

/// Bytes that this process may use, as far as Linux says.
pub fn machine() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let total = mem_total(&read("/proc/meminfo")?)?;
    let group = read("/proc/self/cgroup").unwrap_or_default();
    // A limit may be set at any level above the process.
    let limits = limit_files(&group).into_iter().filter_map(|path| read(&path)?.trim().parse().ok());
    Some(limits.fold(total, u64::min))
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Where the limits of a process are, by its `/proc/self/cgroup`: version 2 and version 1.
fn limit_files(cgroup: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(kind), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match kind {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{file}"));
            let Some((above, _)) = path.rsplit_once('/') else { break };
            path = above;
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> ObservationSpace {
        ObservationSpace::Bytes { shape: vec![4, 84, 84], stack: 4 }
    }

    #[test]
    fn a_replay_that_is_too_large_is_refused_with_what_would_fit() {
        // 84·84 + 26 = 7082 bytes a transition, and three more slots: 1000003 · 7082 = 7.08 GB.
        assert_eq!(memory(1_000_000, 1, &frames()), 7_082_021_246);
        assert_eq!(fits_into(7_082_021_246, 1_000_000, 1, &frames()), Ok(()));
        let error = fits_into(1_000_000_000, 1_000_000, 1, &frames()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a replay of 1000000 transitions needs 7.1 GB, this machine has 1.0 GB: \
             lower agent.replay_capacity to at most 141200"
        );
        assert!(memory(141_200, 1, &frames()) <= 1_000_000_000);
        assert!(memory(141_201, 1, &frames()) > 1_000_000_000);
        for n_lanes in [3, 64] {
            let at_most =
                fits_into(1_000_000_000, 1_000_000, n_lanes, &frames()).unwrap_err().at_most as usize;
            assert_eq!(fits_into(1_000_000_000, at_most, n_lanes, &frames()), Ok(()));
            assert!(fits_into(1_000_000_000, at_most + 1, n_lanes, &frames()).is_err());
        }
        assert!(fits_into(u64::MAX - 1, usize::MAX, 7, &frames()).is_err());
    }

    #[test]
    fn a_small_replay_fits_this_machine_and_the_largest_does_not() {
        assert_eq!(Replay::fits(1000, 4, &ObservationSpace::Bits(vec![10, 10, 10])), Ok(()));
        if cfg!(target_os = "linux") {
            assert!(Replay::fits(usize::MAX, 1, &ObservationSpace::Bits(vec![10])).is_err());
        }
    }

    #[test]
    fn the_limits_of_linux_are_found() {
        assert_eq!(mem_total("MemFree: 1 kB\nMemTotal:       24684100 kB\n"), Some(24_684_100 * 1024));
        assert_eq!(mem_total("MemFree: 1 kB\n"), None);
        assert_eq!(
            limit_files("4:memory:/a/b\n1:cpu:/\n0::/\n"),
            [
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory.max",
            ]
        );
    }
}
