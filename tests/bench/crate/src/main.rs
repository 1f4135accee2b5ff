//! crate-recorder HZ STACK_BYTES RING_STACKS SPOOL COMMAND [ARG…]
//!
//! The Rust crate stackpulse as a recorder, for `make bench`: launches a command, records it into a
//! spool with all descendants, and prints its samples and lost events on standard error. RING_STACKS 0 is
//! the crate's default. Ends as the command did.
use stackpulse::process::Launch;
use stackpulse::record::ProcessScope;
use stackpulse::{Recorder, SampleRate, Spool};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    if args.len() < 6 {
        return Err("usage: crate-recorder HZ STACK_BYTES RING_STACKS SPOOL COMMAND [ARG…]".into());
    }
    let prepared = Recorder::builder(SampleRate::hz(args[1].parse()?)?)
        .stack_size(args[2].parse()?)
        .ring_buffer_stacks(args[3].parse()?)
        .scope(ProcessScope::Descendants)
        .prepare(
            Launch::new(&args[5]).args(&args[6..]),
            Spool::retained(std::fs::File::create(&args[4])?)?,
        )?;
    let (mut recorder, mut child) = prepared.start()?;
    loop {
        let activity = recorder.poll(Duration::from_millis(100))?;
        if !activity.root_active() && !activity.pending_events() {
            break;
        }
    }
    let status = child.wait()?;
    let summary = recorder.finish()?;
    eprintln!("{} {}", summary.samples, summary.lost_events);
    std::process::exit(status.code().unwrap_or(1));
}
