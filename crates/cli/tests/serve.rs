//! `bqrl serve`: its one line of output, how it ends, and the caller's mistakes. Its answers are tested in `crates/web`.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use support::{Desk, signal};

#[cfg(unix)]
#[test]
fn it_prints_its_address_answers_and_ends_with_a_signal() {
    let desk = Desk::new();
    let mut child = desk.command(&["serve", "--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line}"));
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /api/runs HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"runs\":[]"), "{answer}");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn assert_says(message: &str, words: &[&str]) {
    assert!(words.iter().all(|word| message.contains(word)), "want {words:?}: {message}");
}

#[test]
fn mistakes_are_one_line() {
    let desk = Desk::new();
    desk.write("file", "text");
    assert_says(&desk.refusal(&["serve", "nowhere"]), &["reading nowhere", "No such file"]);
    assert_says(&desk.refusal(&["serve", "file"]), &["reading file", "Not a directory"]);
    assert_says(&desk.refusal(&["serve", "--host", "example.org"]), &["example.org", "--host"]);
    assert_says(&desk.refusal(&["serve", "--port", "70000"]), &["70000", "--port"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert_says(
        &desk.refusal(&["serve", "--port", &port]),
        &["listening on 127.0.0.1", "--port 0 takes any free port"],
    );
}
