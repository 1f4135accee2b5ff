//! crate-fold SPOOL
//!
//! The Rust crate stackpulse as a symbolizer, for `make bench`: one of its spools to folded text, with
//! names and inlines, on standard output.
use stackpulse::Replay;
use std::collections::HashMap;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spool = std::env::args().nth(1).ok_or("usage: crate-fold SPOOL")?;
    let reader = Replay::open(&spool)?;
    let mut symbolizer = reader.symbolizer().build()?;
    let mut counts: HashMap<String, u64> = HashMap::new();
    for sample in reader.samples() {
        let stack = symbolizer.resolve(sample.stack())?;
        let names: Vec<&str> = stack
            .frames()
            .map(|frame| frame.name().unwrap_or("[unknown]"))
            .collect();
        let mut line = String::new();
        for name in names.iter().rev() {
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(name);
        }
        *counts.entry(line).or_default() += 1;
    }
    let mut lines: Vec<_> = counts.into_iter().collect();
    lines.sort();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (line, n) in lines {
        writeln!(out, "{line} {n}")?;
    }
    Ok(())
}
