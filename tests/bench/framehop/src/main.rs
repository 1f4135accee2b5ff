//! What framehop costs on the samples that `walk --dump FILE` wrote: the same figures, taken in
//! the same way as tests/bench/walk.c takes ours (its first comment says how; the format of the
//! file is described at dump() there). One cache for all, one unwinder for each address space.
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder};
use std::collections::HashMap;
use std::time::Instant;

const BATCH: usize = 16;
const MAX_FRAMES: usize = 4096;

type Data = &'static [u8];
type Space = UnwinderX86_64<Data, MayAllocateDuringUnwind>;

struct Sample {
    space: usize,
    pc: u64,
    sp: u64,
    bp: u64,
    stack: Data,
}

struct Input {
    data: Data,
}

impl Input {
    fn bytes(&mut self, n: usize) -> Data {
        let (head, rest) = self.data.split_at(n);
        self.data = rest;
        head
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().unwrap())
    }
}

fn leak(bytes: Vec<u8>) -> Data {
    Box::leak(bytes.into_boxed_slice())
}

/// An address range and its bytes in the file, if it has any.
fn section(input: &mut Input, file: Data) -> Option<(std::ops::Range<u64>, Data)> {
    let (svma, size, foff) = (input.word(), input.word(), input.word() as usize);
    let bytes = file.get(foff..foff + size as usize)?;
    (size > 0).then_some((svma..svma + size, bytes))
}

fn space(input: &mut Input, files: &mut HashMap<Data, Data>) -> Space {
    let mut unwinder = Space::new();
    for _ in 0..input.word() {
        let (start, end, bias) = (input.word(), input.word(), input.word());
        let n = input.word() as usize;
        let path = input.bytes(n);
        let file = *files.entry(path).or_insert_with(|| {
            leak(std::fs::read(std::str::from_utf8(path).unwrap()).unwrap_or_default())
        });
        let text = section(input, file);
        let eh_frame = section(input, file);
        let hdr = section(input, file);
        let info = ExplicitModuleSectionInfo::<Data> {
            base_svma: 0,
            text_svma: text.clone().map(|t| t.0),
            text: text.map(|t| t.1),
            eh_frame_svma: eh_frame.clone().map(|t| t.0),
            eh_frame: eh_frame.map(|t| t.1),
            eh_frame_hdr_svma: hdr.clone().map(|t| t.0),
            eh_frame_hdr: hdr.map(|t| t.1),
            ..Default::default()
        };
        unwinder.add_module(Module::new(String::new(), start..end, bias, info));
    }
    unwinder
}

fn walk(spaces: &[Space], cache: &mut CacheX86_64, s: &Sample, out: &mut Vec<u64>) -> bool {
    let mut read = |addr: u64| {
        let off = addr.wrapping_sub(s.sp) as usize;
        match s.stack.get(off..off.wrapping_add(8)) {
            Some(word) => Ok(u64::from_le_bytes(word.try_into().unwrap())),
            None => Err(()),
        }
    };
    let regs = UnwindRegsX86_64::new(s.pc, s.sp, s.bp);
    let mut frames = spaces[s.space].iter_frames(s.pc, regs, cache, &mut read);
    out.clear();
    loop {
        match frames.next() {
            Ok(Some(frame)) if out.len() < MAX_FRAMES => out.push(frame.address_for_lookup()),
            Ok(None) => return true,
            _ => return false,
        }
    }
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    ns: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, t: *mut Timespec) -> i32;
}

/// CPU time of this thread, ns.
fn cpu_ns() -> f64 {
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut t = Timespec { seconds: 0, ns: 0 };
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.seconds as f64 * 1e9 + t.ns as f64
}

fn hot(spaces: &[Space], samples: &[Sample]) {
    let (mut cache, mut out) = (CacheX86_64::new(), Vec::with_capacity(MAX_FRAMES));
    let (mut total, mut frames, mut ends) = (0.0, 0, 0);
    for batch in samples.chunks(BATCH) {
        let mut least = f64::MAX;
        for pass in 0..8 {
            let start = Instant::now();
            for s in batch {
                let end = walk(spaces, &mut cache, s, &mut out);
                if pass == 0 {
                    frames += out.len();
                    ends += end as usize;
                }
            }
            if pass > 0 {
                least = least.min(start.elapsed().as_nanos() as f64);
            }
        }
        total += least;
    }
    let n = samples.len() as f64;
    println!(
        "  {} samples, {:.1} frames each, {:.1} % to their end",
        samples.len(),
        frames as f64 / n,
        100.0 * ends as f64 / n
    );
    println!("  hot   {:6.1} ns per frame, {:5.0} ns per sample", total / frames as f64, total / n);
}

fn cold(spaces: &[Space], samples: &[Sample]) {
    let (mut cache, mut out) = (CacheX86_64::new(), Vec::with_capacity(MAX_FRAMES));
    let (mut least, mut first, mut frames) = (f64::MAX, 0.0, 0);
    for pass in 0..4 {
        let start = cpu_ns();
        frames = 0;
        for s in samples {
            walk(spaces, &mut cache, s, &mut out);
            frames += out.len();
        }
        let t = cpu_ns() - start;
        if pass == 0 {
            first = t;
        } else {
            least = least.min(t);
        }
    }
    let (n, stats) = (samples.len() as f64, cache.stats());
    println!(
        "  cold  {:6.1} ns per frame, {:5.0} ns per sample (first pass {:.1}; {:.1} % of the rules were in its cache)",
        least / frames as f64,
        least / n,
        first / frames as f64,
        100.0 * stats.hits() as f64 / stats.total() as f64
    );
}

fn main() {
    for path in std::env::args().skip(1) {
        let mut input = Input { data: leak(std::fs::read(&path).expect("the dump can be read")) };
        let (mut files, mut spaces, mut samples) = (HashMap::new(), Vec::new(), Vec::new());
        println!("{path}");
        while !input.data.is_empty() {
            if input.word() == 0 {
                spaces.push(space(&mut input, &mut files));
                continue;
            }
            let (space, pc, sp, bp) =
                (input.word() as usize, input.word(), input.word(), input.word());
            let n = input.word() as usize;
            samples.push(Sample { space, pc, sp, bp, stack: input.bytes(n) });
        }
        hot(&spaces, &samples);
        cold(&spaces, &samples);
    }
}
