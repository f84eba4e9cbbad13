//! Where each setting of a run comes from: the preset with its reason, or somebody changed it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bqrl_lab::config::Algo;
use bqrl_report::escape;
use bqrl_runs::reader::Run;

/// A table of the settings; empty if the algorithm is not known.
pub fn table(run: &Run) -> String {
    let Ok(algo) = Algo::named(&run.summary.algo) else { return String::new() };
    let preset = entries(algo.preset());
    let mut html = String::from(
        "<h2>Where the settings come from</h2>\n<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">setting</th>\
         <th scope=\"col\" class=\"text\">value</th><th scope=\"col\" class=\"text\">preset</th>\
         <th scope=\"col\" class=\"text\">where it comes from</th></tr></thead>\n<tbody>\n",
    );
    for (key, (value, _)) in entries(&run.config) {
        let (default, reason) = match preset.get(&key) {
            Some((default, reason)) if same(default, &value) => (default.as_str(), reason.as_str()),
            Some((default, _)) => (default.as_str(), "changed for this run"),
            None => ("", "given for this run"),
        };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td></tr>",
            escape(&key),
            escape(&value),
            escape(default),
            escape(reason)
        );
    }
    html += "</tbody></table></div>\n";
    html
}

/// `section.key` → (value, comment), of a file with one setting a line, as presets and runs have.
fn entries(text: &str) -> BTreeMap<String, (String, String)> {
    let mut section = String::new();
    let mut entries = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, rest)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            // No value of ours contains " #".
            let (value, comment) = rest.split_once(" #").unwrap_or((rest, ""));
            entries.insert(
                format!("{section}.{}", key.trim()),
                (value.trim().to_owned(), comment.trim().to_owned()),
            );
        }
    }
    entries
}

/// 0.001 and 1e-3 are the same value.
fn same(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_its_value_and_its_reason() {
        let entries = entries("# text = 1\n[run]\ntau = [0.1] # §4\n[agent]\nkind = \"a\"\n");
        assert_eq!(entries["run.tau"], ("[0.1]".to_owned(), "§4".to_owned()));
        assert_eq!(entries["agent.kind"], ("\"a\"".to_owned(), String::new()));
        assert_eq!(entries.len(), 2);
        assert!(same("1e-3", "0.001") && same("\"a\"", "\"a\"") && !same("1", "2"));
    }
}
