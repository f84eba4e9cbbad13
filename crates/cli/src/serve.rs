//! `bqrl serve [DIR]`: the live page.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bqrl_web::{Options, Server};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::terminal::{print, say};

/// The flags of `bqrl serve`.
#[derive(clap::Args)]
pub struct ServeArgs {
    /// The directory with runs and MDP files
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// The port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 8765)]
    port: u16,
    /// The address to listen on; anything but a loopback address lets other machines read the directory
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
}

/// Answers until it is interrupted.
pub fn run(args: &ServeArgs) -> Result<String, Failure> {
    let options = Options { host: args.host, port: args.port, ..Options::new(&args.directory) };
    let server = Server::bind(options).map_err(|error| {
        let failure = Failure::usage(&error);
        if error.kind() == std::io::ErrorKind::AddrInUse {
            failure.hint("--port 0 takes any free port")
        } else {
            failure
        }
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Failure::runtime(format!("listening for signals: {error}")))?;
    }
    let address = server.address().map_err(Failure::runtime)?;
    print(&format!("listening on http://{address}\n"))?;
    if !address.ip().is_loopback() {
        say("note: other machines can read the runs in this directory");
    }
    server.run(&stop).map_err(Failure::runtime)?;
    Ok(String::new())
}
