//! `monitor.csv`, the Monitor format that Stable-Baselines3 and the scripts around it read.
//!
//! ```text
//! #{"t_start": 1767225600.25, "env_id": "asset-selling"}
//! r,l,t
//! 0.75,3,0.001250
//! ```
//!
//! `r` is the return of an episode and `l` its length.
//! `t` is the time of its end in seconds since `t_start`, itself in seconds since 1970; both come from the caller.

use std::io;
use std::path::Path;

use crate::log::AppendLog;

/// The columns of the file, in its second line.
pub const HEADER: &str = "r,l,t";

/// Starts a Monitor file. It is resumed like any other log, with [`AppendLog::resume`].
pub fn create(path: &Path, t_start: f64, env_id: &str) -> io::Result<AppendLog> {
    assert!(t_start.is_finite(), "t_start must be finite, got {t_start}");
    // `Value` writes the string as JSON does: quoted and escaped.
    let env_id = serde_json::Value::from(env_id);
    let mut log = AppendLog::create(path, &format!(r#"#{{"t_start": {t_start:?}, "env_id": {env_id}}}"#))?;
    log.append(HEADER)?;
    log.flush()?;
    Ok(log)
}

/// The line of one episode. The return is written so that reading it gives the same number back.
pub fn row(r: f64, l: u64, t: f64) -> String {
    format!("{r:?},{l},{t:.6}")
}

/// (l, t) of every episode.
pub fn times(path: &Path) -> io::Result<Vec<(u64, f64)>> {
    let text = std::fs::read_to_string(path)?;
    let episode = |(number, row): (usize, &str)| {
        let mut columns = row.split(',').skip(1);
        let length = columns.next().and_then(|l| l.parse().ok());
        let time = columns.next().and_then(|t| t.parse().ok());
        length.zip(time).ok_or_else(|| {
            let message = format!("line {}: want r,l,t, got {row:?}", number + 1);
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    };
    text.lines().enumerate().skip(2).map(episode).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_a_json_line_the_columns_and_the_episodes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("monitor.csv");
        let mut log = create(&path, 1767225600.25, "asset-selling").unwrap();
        assert!(times(&path).unwrap().is_empty());
        log.append(&row(1.0, 3, 0.00125)).unwrap();
        log.append(&row(-0.1, 12, 2.0)).unwrap();
        log.flush().unwrap();
        let expected = "#{\"t_start\": 1767225600.25, \"env_id\": \"asset-selling\"}\n\
                        r,l,t\n1.0,3,0.001250\n-0.1,12,2.000000\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(times(&path).unwrap(), [(3, 0.00125), (12, 2.0)]);
        fs::write(&path, "#{}\nr,l,t\n1.0,3\n").unwrap();
        assert!(times(&path).unwrap_err().to_string().starts_with("line 3: want r,l,t"));
    }

    #[test]
    fn the_first_line_is_json_for_any_environment_and_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("monitor.csv");
        for (t_start, env_id) in [(0.0, "C:\\mdp \"7\"\n.csv"), (1e18, "größe")] {
            create(&path, t_start, env_id).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let first = text.lines().next().unwrap().strip_prefix('#').unwrap();
            let json: serde_json::Value = serde_json::from_str(first).unwrap();
            assert_eq!(json["t_start"], t_start);
            assert_eq!(json["env_id"], env_id);
        }
    }
}
