// SPDX-License-Identifier: MPL-2.0

//! Ctrl-C and SIGTERM: the first is told on the bus of the pipeline that runs, for it to end as it does at the end of the
//! stream. The second ends the program at once.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

const INTERRUPTED: &str = "interrupted";

/// What the thread that waits for signals has in common with the others.
struct Shared {
    /// It has been started.
    watched: bool,
    /// The first that came.
    signal: Option<i32>,
    /// Of the pipeline that runs.
    bus: Option<gst::Bus>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { watched: false, signal: None, bus: None });

fn shared() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Catches signals from now on.
pub fn watch() -> io::Result<()> {
    let mut state = shared();
    if state.watched {
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signals = signals.forever();
        if let Some(signal) = signals.next() {
            let mut state = shared();
            state.signal = Some(signal);
            state.bus.iter().for_each(|bus| post(bus, signal));
        }
        if let Some(signal) = signals.next() {
            // Fails for signals that cannot be caught, and so do not come here.
            let _ = emulate_default_handler(signal);
        }
    })?;
    state.watched = true;
    Ok(())
}

/// Tells of the first signal on this bus and no other, also if it has come before.
pub fn tell(bus: &gst::Bus) -> io::Result<()> {
    watch()?;
    let mut state = shared();
    state.signal.iter().for_each(|signal| post(bus, *signal));
    state.bus = Some(bus.clone());
    Ok(())
}

/// The signal that has come.
pub fn caught() -> Option<i32> {
    shared().signal
}

fn post(bus: &gst::Bus, signal: i32) {
    let structure = gst::Structure::builder(INTERRUPTED).field("signal", signal).build();
    // Refused only by a pipeline that stops.
    let _ = bus.post(gst::message::Application::new(structure));
}
