//! Requests and directories that somebody prepared to do harm.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use bqrl_runs::run_dir::RunDir;
use bqrl_web::Options;
use support::{Answer, Running, trained, unfinished};

#[test]
fn only_requests_for_this_machine_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::over(directory.path());
    let ask = |host: &str| {
        Answer::of(&server.send(&format!("GET /api/runs HTTP/1.1\r\n{host}Connection: close\r\n\r\n"))).status
    };
    assert_eq!(ask(&format!("Host: {}\r\n", server.address)), 200);
    assert_eq!(ask("Host: localhost\r\n"), 200);
    // A name that its owner points at this machine (DNS rebinding), no name, and two.
    assert_eq!(ask("Host: evil.example\r\n"), 421);
    assert_eq!(ask(""), 421);
    assert_eq!(ask("Host: localhost\r\nHost: evil.example\r\n"), 421);
    let address = format!("Host: {}\r\n", server.address);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let text = server.send(&format!("{method} / HTTP/1.1\r\n{address}Connection: close\r\n\r\n"));
        assert_eq!(Answer::of(&text).status, 405, "{method}");
    }
}

#[test]
fn every_answer_forbids_other_sites_and_inline_scripts() {
    let directory = tempfile::tempdir().unwrap();
    let _run = unfinished(&directory.path().join("a"), 20);
    let server = Running::over(directory.path());
    let targets = [
        "/",
        "/runs/a",
        "/compare?run=a",
        "/dial",
        "/dial?problem=gamble-chain",
        "/api/runs",
        "/api/runs/a",
        "/api/dial?problem=gamble-chain",
        "/assets/live.js",
        "/assets/page.css",
        "/nowhere",
        "/files?run=a&path=config.toml",
    ];
    for target in targets {
        let answer = server.get(target);
        assert!(
            answer.head.contains("content-security-policy: default-src 'none'"),
            "{target}: {}",
            answer.head
        );
        assert!(answer.head.contains("x-content-type-options: nosniff"), "{target}");
        assert!(answer.head.contains("cross-origin-resource-policy: same-origin"), "{target}");
        assert!(!answer.head.contains("access-control-"), "{target}: no CORS");
        assert!(!answer.head.contains("unsafe"), "{target}");
        // Pages must work under that policy.
        if answer.head.contains("text/html") {
            assert!(
                !answer.body.contains("<style") && !answer.body.contains(" style=\""),
                "{target}: an inline style"
            );
            assert!(!answer.body.contains(" onclick=") && !answer.body.contains("javascript:"), "{target}");
            let scripts = answer.body.matches("<script").count();
            assert_eq!(
                scripts,
                answer.body.matches("<script type=\"module\" src=\"/assets/").count(),
                "{target}"
            );
        }
    }
}

#[test]
fn no_path_leads_out_of_the_directory() {
    let outer = tempfile::tempdir().unwrap();
    fs::write(outer.path().join("secret.csv"), "secret").unwrap();
    let root = outer.path().join("served");
    let (_dir, _lock) = unfinished(&root.join("a"), 20);
    let server = Running::over(&root);
    assert!(server.get("/files?run=a&path=config.toml").body.contains("asset-selling"));
    let up = [
        "/../secret.csv",
        "/%2e%2e/secret.csv",
        "/assets/../../secret.csv",
        "/assets/%2e%2e%2f%2e%2e%2fsecret.csv",
        "/runs/../secret.csv",
        "/runs/..%2fsecret.csv",
        "/files?run=a&path=../../secret.csv",
        "/files?run=a&path=..%2f..%2fsecret.csv",
        "/files?run=..&path=secret.csv",
        "/files?run=a/..&path=secret.csv",
        "/files?run=a&path=/etc/passwd",
        "/files?path=secret.csv",
        "/files?run=a&path=.bqrl-lock",
        "/files?run=a&path=",
        "/api/table?run=a&path=../../secret.csv",
        "/dial?file=../secret.csv",
        "/dial?file=/etc/passwd",
        "/dial?run=../",
        "/api/runs/../..",
        "/compare?run=..",
        "/files?run=a&path=config.toml%00.csv",
    ];
    for target in up {
        let answer = server.get(target);
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.status);
        assert!(!answer.body.contains("secret\n") && !answer.body.contains("root:"), "{target}");
    }
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    use std::os::unix::fs::symlink;

    let outer = tempfile::tempdir().unwrap();
    let elsewhere = outer.path().join("elsewhere");
    let (_other, _lock) = unfinished(&elsewhere.join("run"), 20);
    fs::write(elsewhere.join("model.csv"), "idstatefrom,idaction,idstateto,probability,reward\n0,0,1,1,1\n")
        .unwrap();
    let root = outer.path().join("served");
    let (dir, _held) = unfinished(&root.join("a"), 20);
    symlink(&elsewhere, root.join("link")).unwrap();
    symlink(elsewhere.join("run"), root.join("run")).unwrap();
    symlink(elsewhere.join("model.csv"), root.join("model.csv")).unwrap();
    // A run whose table is a link to somewhere else.
    fs::remove_file(dir.seed(1).evaluations()).unwrap();
    symlink(elsewhere.join("run/seed-1/evaluations.csv"), dir.seed(1).evaluations()).unwrap();
    let server = Running::over(&root);
    let runs = server.get("/api/runs").json();
    let runs = runs["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(runs[0]["state"], "unreadable");
    assert!(runs[0]["error"].as_str().unwrap().contains("is a symbolic link"), "{runs:?}");
    assert!(
        !runs[0]["error"].as_str().unwrap().contains(root.to_str().unwrap()),
        "paths of the machine stay here"
    );
    assert_eq!(server.get("/files?run=a&path=seed-1/evaluations.csv").status, 404);
    assert_eq!(server.get("/dial?file=model.csv").status, 404);
    assert_eq!(server.get("/dial?file=link/model.csv").status, 404);
}

/// Files that are checked for links, and then opened, could be swapped for links in between. So even the reader that checks
/// nothing before must refuse a link in the place of the mark, of the checkpoints and of any file of them.
#[cfg(unix)]
#[test]
fn links_in_the_place_of_the_mark_and_of_checkpoints_are_not_followed() {
    use std::os::unix::fs::symlink;

    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("served");
    trained(&root.join("a"), "gamble-chain", "target-tracking", 10);
    let latest = || {
        let dir = RunDir::open_below(&root, &root.join("a")).map_err(|error| error.to_string())?;
        dir.seed(1).checkpoint_store().latest().map_err(|error| error.to_string())
    };
    let number = latest().unwrap().unwrap().number;
    let checkpoints = root.join("a/seed-1/checkpoints");
    let checkpoint = checkpoints.join(format!("{number:06}"));
    let outside = outer.path().join("outside");
    for place in [
        root.join("a/.bqrl-run"),
        root.join("a/config.toml"),
        root.join("a"),
        root.join("a/seed-1"),
        checkpoints,
        checkpoint.clone(),
        checkpoint.join("manifest.json"),
        checkpoint.join("agent.json"),
    ] {
        assert!(latest().unwrap().is_some_and(|found| found.number == number));
        fs::rename(&place, &outside).unwrap();
        symlink(&outside, &place).unwrap();
        // An earlier checkpoint that is whole may be used instead.
        let found = latest();
        assert!(
            found.as_ref().map_or(true, |found| found.as_ref().is_none_or(|found| found.number < number)),
            "{}: {found:?}",
            place.display()
        );
        let server = Running::over(&root);
        assert!(server.get("/api/served?run=a&who=1").status >= 400, "{}", place.display());
        fs::remove_file(&place).unwrap();
        fs::rename(&outside, &place).unwrap();
    }
    assert_eq!(Running::over(&root).get("/api/served?run=a&who=1").status, 200);
    // The same for a run that is the served directory itself.
    let alone = root.join("a");
    fs::rename(alone.join(".bqrl-run"), &outside).unwrap();
    symlink(&outside, alone.join(".bqrl-run")).unwrap();
    let runs = Running::over(&alone).get("/api/runs").json();
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(0), "{runs}");
}

#[test]
fn a_configuration_cannot_name_a_file_of_the_machine() {
    let directory = tempfile::tempdir().unwrap();
    let outside = directory.path().join("outside.csv");
    fs::write(&outside, "idstatefrom,idaction,idstateto,probability,reward\n0,0,1,1,1\n").unwrap();
    let root = directory.path().join("served");
    let (dir, _lock) = unfinished(&root.join("a"), 20);
    let config = fs::read_to_string(dir.config()).unwrap();
    let named = format!("name = {:?}\nhorizon = 3\nstart = 0", outside.to_str().unwrap());
    fs::write(dir.config(), config.replace("name = \"asset-selling\"", &named)).unwrap();
    let server = Running::over(&root);
    let answer = server.get("/api/dial?run=a");
    assert_eq!(answer.status, 400, "{}", answer.body);
}

#[test]
fn hostile_names_are_shown_and_do_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let names = [
        "<script>alert(1)<",
        "a\"onmouseover=\"x",
        "100%25",
        "a b&c=d#e",
        "größe τ",
        "'; --",
        "javascript:x",
    ];
    let held: Vec<_> = names.iter().map(|name| unfinished(&directory.path().join(name), 20)).collect();
    let server = Running::over(directory.path());
    let page = server.get("/").body;
    assert!(!page.contains("<script>alert") && !page.contains("\"onmouseover"), "{page}");
    for name in names {
        let encoded = name.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}"));
        let run = server.get(&format!("/api/runs/{encoded}"));
        assert_eq!(run.json()["id"], name);
        let page = server.get(&format!("/runs/{encoded}"));
        assert_eq!(page.status, 200, "{name}");
        assert!(!page.body.contains("<script>alert") && !page.body.contains("\"onmouseover"), "{name}");
        assert_eq!(server.get(&format!("/files?run={encoded}&path=config.toml")).status, 200, "{name}");
    }
    assert!(page.contains("href=\"/runs/javascript%3Ax\""), "an address of this server, not a script");
    drop(held);
}

#[test]
fn huge_and_torn_files_are_named_and_the_rest_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let make = |name: &str| unfinished(&directory.path().join(name), 20);
    let (_fine, _a) = make("fine");
    let (torn, _b) = make("torn");
    let (damaged, _c) = make("damaged");
    let (huge, _d) = make("huge");
    let (binary, _e) = make("binary");
    // The writer is in the middle of a line.
    let rows = fs::read_to_string(torn.seed(1).evaluations()).unwrap();
    fs::write(torn.seed(1).evaluations(), &rows[..rows.len() - 3]).unwrap();
    fs::write(damaged.seed(1).evaluations(), "episode,tau\nx\n").unwrap();
    // A terabyte that takes no space on the disk.
    fs::File::options().write(true).open(huge.seed(1).episodes()).unwrap().set_len(1 << 40).unwrap();
    fs::write(binary.config(), [0xff, 0xfe, 0x00]).unwrap();
    fs::create_dir(directory.path().join("empty")).unwrap();
    fs::write(directory.path().join("empty/.bqrl-run"), "nonsense").unwrap();
    let server = Running::over(directory.path());
    let runs = server.get("/api/runs").json();
    let state = |id: &str| {
        let run = runs["runs"].as_array().unwrap().iter().find(|run| run["id"] == id).unwrap();
        (run["state"].as_str().unwrap().to_owned(), run["error"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(state("fine").0, "running");
    assert_eq!(state("torn").0, "running");
    for (id, words) in
        [("damaged", "line 1"), ("huge", "at most"), ("binary", "not text"), ("empty", "damaged")]
    {
        let (shown, error) = state(id);
        assert!(shown == "unreadable" && error.contains(words), "{id}: {error}");
        assert_eq!(server.get(&format!("/runs/{id}")).status, 200);
    }
    // A million rows: the page is small, a table is thinned, the whole file is there.
    assert!(server.get("/runs/torn").body.len() < 1 << 20);
    assert!(server.get("/api/table?run=torn&path=seed-1/episodes.csv&rows=5").body.lines().count() <= 6);
}

#[test]
fn slow_clients_are_let_go_and_do_not_hold_up_others() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, _lock) = unfinished(&directory.path().join("a"), 20);
    fs::write(dir.path().join("large.txt"), vec![b'x'; 64 << 20]).unwrap();
    let patience = Duration::from_millis(700);
    let server =
        Running::with(Options { patience, header_patience: patience, ..Options::new(directory.path()) });
    // Half a request and then silence; nothing at all; and one that wants 64 MB and reads nothing.
    let mut half: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for stream in &mut half {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: local").unwrap();
    }
    let silent: Vec<_> = (0..50).map(|_| server.connect()).collect();
    let mut deaf: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for stream in &mut deaf {
        stream.write_all(b"GET /files?run=a&path=large.txt HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    let begun = Instant::now();
    assert_eq!(server.get("/api/runs").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(10), "others are answered meanwhile");
    for stream in half.iter_mut().chain(&mut { silent }) {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 1000, "the connection was closed");
    }
    std::thread::sleep(3 * patience);
    for stream in &mut deaf {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 64 << 20, "a client that does not read is let go: {}", rest.len());
    }
    // A client that reads gets the whole file.
    assert_eq!(server.get("/files?run=a&path=large.txt").body.len(), 64 << 20);
}

#[test]
fn nonsense_instead_of_http_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::over(directory.path());
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000));
    let many = (0..500).fold(String::new(), |text, k| text + &format!("X-{k}: y\r\n"));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    for text in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "\u{16}\u{3}\u{1}\r\n\r\n", long.as_str(), many.as_str()]
    {
        let status = Answer::of(&server.send(text)).status;
        assert!(status == 0 || (400..500).contains(&status), "{status}");
    }
    for target in [
        "/%",
        "/%zz",
        "/?%ff=1",
        "/dial?file=x&horizon=-1",
        "/api/dial?problem=nope",
        "/api/cell?problem=gamble-chain",
        "/api/cell?problem=gamble-chain&stage=99999999999999999999&state=0",
        "/api/play?problem=gamble-chain&plan=9999&seed=1",
        "/api/dial?problem=asset-selling&env.offers=1e9",
        "/api/dial?problem=asset-selling&env.nope=1",
    ] {
        let answer = server.get(target);
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.status);
    }
    assert_eq!(server.get("/api/runs").status, 200);
}
