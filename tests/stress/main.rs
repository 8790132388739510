// SPDX-License-Identifier: MPL-2.0

//! Seeded stress: elements in pipelines of all kinds, with random changes, seeks, losses and errors in any order. Every
//! frame shows a number, which its scores identify, so a frame that is compared with the wrong one, lost or sent twice is
//! found.
//!
//! Each world is one element and depends only on the seed and its number. A failure names both; set
//! `HIPVMAF_STRESS_SEED` and `HIPVMAF_STRESS_WORLD` to repeat it, as far as the order of threads repeats.
//! `HIPVMAF_STRESS_SECONDS` makes the test run for longer. `HIPVMAF_STRESS_WITHOUT` leaves out kinds of events (names as in
//! `world.rs`, separated by commas), which shows the ones that a failure needs.

mod ledger;
mod neighbours;
mod pictures;
mod random;
mod world;

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use neighbours::Heartbeat;
use pictures::{ALIVE, Table};
use world::World;

/// Worlds in a run without `HIPVMAF_STRESS_SECONDS`, and frames in each.
const WORLDS: u64 = 40;
const FRAMES: u64 = 240;
/// The time after which a step counts as a hang.
const HANGS: Duration = Duration::from_secs(100);

/// The last actions of a world, which are printed with a failure.
#[derive(Default)]
pub struct Story {
    lines: Mutex<VecDeque<String>>,
    pub heart: Heartbeat,
}

impl Story {
    pub fn say(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == 60 {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn text(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("    {line}\n")).collect()
    }

    fn forget(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Ends the process when the heartbeat stops, because hanging threads cannot be ended.
fn watch(story: Arc<Story>, world: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let (mut beats, mut since) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            if story.heart.beats() != beats {
                (beats, since) = (story.heart.beats(), Instant::now());
            }
            if since.elapsed() > HANGS {
                let world = world.lock().unwrap_or_else(PoisonError::into_inner);
                eprintln!("stress: {world} hangs\n{}", story.text());
                std::process::abort();
            }
        }
    });
}

/// The time within which frames must be freed.
const FREE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the resident memory in MiB.
fn memory() -> f64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: f64 =
        pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the format of statm");
    // SAFETY: sysconf only reads.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64 / 1048576.0
}

/// Returns the number of frames that still exist after everything that held them is gone.
fn frames_left() -> usize {
    let begun = Instant::now();
    while ALIVE.load(Ordering::SeqCst) > 0 && begun.elapsed() < FREE_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
    }
    ALIVE.load(Ordering::SeqCst)
}

#[test]
fn the_element_withstands_whatever_happens() {
    gst::init().expect("GStreamer");
    gsthipvmaf::plugin_register_static().expect("the plugin");
    let seed = number("HIPVMAF_STRESS_SEED").unwrap_or(1);
    let only = number("HIPVMAF_STRESS_WORLD");
    let seconds = number("HIPVMAF_STRESS_SECONDS").map(Duration::from_secs);
    let without = std::env::var("HIPVMAF_STRESS_WITHOUT").unwrap_or_default();
    let without: Vec<_> = without.split(',').map(str::to_owned).collect();
    let story = Arc::new(Story::default());
    let name = Arc::new(Mutex::new(String::new()));
    watch(story.clone(), name.clone());
    let begun = Instant::now();
    let mut table = Table::default();
    let mut samples = vec![];
    let goes_on = |world: u64| match (only, seconds) {
        (Some(only), _) => world == only,
        (None, Some(limit)) => begun.elapsed() < limit,
        (None, None) => world < WORLDS,
    };
    for world in (only.unwrap_or(0)..).take_while(|world| goes_on(*world)) {
        let replay = format!("HIPVMAF_STRESS_SEED={seed} HIPVMAF_STRESS_WORLD={world}");
        replay.clone_into(&mut name.lock().unwrap_or_else(PoisonError::into_inner));
        story.forget();
        let (learned, mut faults, summary) = World::new(&story, seed, world, &without, table).run(FRAMES);
        table = learned;
        let left = frames_left();
        if left > 0 {
            faults.push(format!("{left} frames are left after the end of the world"));
        }
        samples.push(memory());
        println!("{replay}: {summary}, {:.0} MiB, {:.1} s", memory(), begun.elapsed().as_secs_f64());
        assert!(faults.is_empty(), "{replay}\n{faults:#?}\n{}", story.text());
    }
    // Memory that is kept for good was allocated in the first half.
    let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
    let (before, after) = samples.split_at(samples.len() / 2);
    let (before, after) = (most(before), most(after));
    let enough = samples.len() >= WORLDS as usize;
    assert!(!enough || after < before * 1.1 + 8.0, "memory has grown from {before:.1} to {after:.1} MiB");
}
