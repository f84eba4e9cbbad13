//! A reader that fails in every way that the engine must notice.

use std::time::Duration;

use crate::Input;

pub(super) fn run(input: &Input) -> bool {
    match input.text("canary.txt").unwrap_or_default().trim() {
        "panic" => panic!("the canary was told to panic"),
        "hang" => std::thread::sleep(Duration::from_hours(1)),
        "allocate" => drop(std::hint::black_box(vec![0_u8; 1 << 30])),
        "overflow" => {
            std::hint::black_box(deeper(1));
        }
        _ => {}
    }
    true
}

/// Uses up the stack.
fn deeper(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 1024]);
    if n == 0 { frame[0] } else { deeper(n + 1) + frame[1023] }
}
