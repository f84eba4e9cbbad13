//! Memory of the server, in a process of its own: other tests would be counted too.

#![cfg(target_os = "linux")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

use support::{Running, unfinished};

/// Bytes of memory that this process uses (`VmRSS`) or has used at most (`VmHWM`). The server is a part of it.
fn memory(which: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn streams_cost_little_and_a_million_rows_take_little() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, _lock) = unfinished(&directory.path().join("a"), 20);
    let server = Running::over(directory.path());
    assert_eq!(server.get("/api/runs").status, 200);
    let before = memory("VmRSS");
    let mut streams: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    let until = |stream: &mut std::net::TcpStream, word: &str| {
        let mut text = String::new();
        let mut bytes = [0; 1024];
        while !text.contains(word) {
            let n = stream.read(&mut bytes).unwrap();
            assert!(n > 0, "the stream ended: {text}");
            text += &String::from_utf8_lossy(&bytes[..n]);
        }
    };
    for stream in &mut streams {
        until(stream, "retry");
    }
    std::thread::sleep(Duration::from_millis(1200));
    let cost = memory("VmRSS").saturating_sub(before) / streams.len();
    assert!(cost < 100 << 10, "{cost} bytes a stream");
    support::write_rows(&dir, 40);
    for stream in &mut streams {
        until(stream, "\"changed\":[\"a\"]");
    }
    // The others are answered while all of them are open, and there is a limit.
    while server.get("/api/runs/a").json()["episodes"] != 40 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut more: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for stream in &mut more {
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    }
    let refused = more.iter_mut().filter_map(|stream| {
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).ok()?;
        Some(begin.ends_with(b"503"))
    });
    assert_eq!(refused.filter(|&refused| refused).count(), 44, "256 streams are the most");
    drop((streams, more));

    // A million rows are 15 MB of text and 40 MB in memory, in one of three seeds at a time or in all of them.
    let mut rows = String::from("episode,episode_return,length\n");
    for episode in 1..=1_000_000 {
        let _ = writeln!(rows, "{episode},0.{},10", episode % 997);
    }
    fs::write(dir.seed(1).episodes(), &rows).unwrap();
    drop(rows);
    while server.get("/api/runs/a").json()["episodes"] != 1_000_000 {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(server.get("/runs/a").body.contains("1000000 of 100 episodes"));
    let (now, most) = (memory("VmRSS") >> 20, memory("VmHWM") >> 20);
    assert!(most < 300, "at most {most} MB");
    assert!(now < 150, "{now} MB stay");
}
