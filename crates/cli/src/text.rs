//! Plain text for people: numbers, aligned tables, and policies as small maps.

pub use bqrl_report::numbers::{number, often};

/// Columns padded to their widest cell and aligned right; the first row is the heading.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        format!("  {}\n", cells.collect::<Vec<_>>().join("   "))
    };
    rows.iter().map(line).collect()
}

/// The most states and columns of a map that is easy to read.
const MAP_STATES: usize = 40;
const MAP_COLUMNS: usize = 16;

/// A policy as a map: a row per state (the last one on top, as in the paper's figures), a column per run of periods
/// with the same actions. `None` if it does not fit on a screen.
pub fn policy_map(cells: &[Vec<Option<usize>>], states: &[String], actions: &[String]) -> Option<String> {
    let marks = marks(actions)?;
    let shown: Vec<usize> =
        (0..states.len()).filter(|&s| cells.iter().any(|stage| stage[s].is_some())).collect();
    // (first period, last period, its actions), periods counted from 1.
    let mut columns: Vec<(usize, usize, &Vec<Option<usize>>)> = Vec::new();
    for (stage, column) in cells.iter().enumerate() {
        match columns.last_mut() {
            Some((_, last, same)) if *same == column => *last = stage + 1,
            _ => columns.push((stage + 1, stage + 1, column)),
        }
    }
    if shown.len() > MAP_STATES || columns.len() > MAP_COLUMNS {
        return None;
    }
    let mut rows = vec![vec![String::from("state \\ period")]];
    for (first, last, _) in &columns {
        rows[0].push(if first == last { first.to_string() } else { format!("{first}–{last}") });
    }
    for &state in shown.iter().rev() {
        let mut row = vec![states[state].clone()];
        row.extend(
            columns.iter().map(|(_, _, column)| column[state].map_or("·".into(), |a| marks[a].clone())),
        );
        rows.push(row);
    }
    let legend: Vec<String> =
        marks.iter().zip(actions).map(|(mark, name)| format!("{mark} = {name}")).collect();
    Some(format!("{}  {}, · = cannot occur\n", table(&rows), legend.join(", ")))
}

/// One short mark per action: an arrow for a direction, otherwise the shortest prefixes that are all different.
fn marks(actions: &[String]) -> Option<Vec<String>> {
    let arrows = [("left", "←"), ("down", "↓"), ("right", "→"), ("up", "↑")];
    let arrow =
        |name: &String| arrows.iter().find(|(word, _)| word == name).map(|(_, mark)| (*mark).to_owned());
    if let Some(marks) = actions.iter().map(arrow).collect() {
        return Some(marks);
    }
    (1..=4).find_map(|length| {
        let marks: Vec<String> = actions
            .iter()
            .map(|name| {
                // "order-3" is identified by its number, "stop" by its letter.
                let word = name.rsplit([' ', '-']).next().unwrap_or(name);
                word.chars().take(length).collect::<String>().to_uppercase()
            })
            .collect();
        let mut distinct = marks.clone();
        distinct.sort();
        distinct.dedup();
        (distinct.len() == marks.len()).then_some(marks)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_with_the_same_actions_share_a_column() {
        let cells = vec![vec![Some(0), None], vec![Some(0), None], vec![Some(1), Some(0)]];
        let names = ["stop".to_owned(), "continue".to_owned()];
        let states = ["a".to_owned(), "b".to_owned()];
        let map = policy_map(&cells, &states, &names).unwrap();
        let lines: Vec<&str> = map.lines().map(str::trim).collect();
        assert_eq!(lines[0], "state \\ period   1–2   3");
        assert_eq!(lines[1], "b     ·   S");
        assert_eq!(lines[2], "a     S   C");
        assert_eq!(lines[3], "S = stop, C = continue, · = cannot occur");
    }

    #[test]
    fn a_map_too_large_for_a_screen_is_not_drawn() {
        let states: Vec<String> = (0..100).map(|s| s.to_string()).collect();
        let names = ["stop".to_owned(), "continue".to_owned()];
        assert_eq!(policy_map(&[vec![Some(0); 100]], &states, &names), None);
    }
}
