// SPDX-License-Identifier: MPL-2.0

//! Ctrl-C and SIGTERM. The first signal is posted on the bus of the running pipeline, which ends as at the end of the
//! stream. The second ends the program at once.

use std::io;

use std::thread;

use parking_lot::Mutex;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

const INTERRUPTED: &str = "interrupted";

/// State shared with the thread that waits for signals.
struct Shared {
    /// The thread was started.
    watched: bool,
    /// The first signal.
    signal: Option<i32>,
    /// Bus of the running pipeline.
    bus: Option<gst::Bus>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { watched: false, signal: None, bus: None });

/// Begins to handle signals.
pub fn watch() -> io::Result<()> {
    let mut state = SHARED.lock();
    if state.watched {
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signals = signals.forever();
        if let Some(signal) = signals.next() {
            let mut state = SHARED.lock();
            state.signal = Some(signal);
            state.bus.iter().for_each(|bus| post(bus, signal));
        }
        if let Some(signal) = signals.next() {
            // Fails only for signals that cannot be caught.
            let _ = emulate_default_handler(signal);
        }
    })?;
    state.watched = true;
    Ok(())
}

/// Posts the first signal on this bus only, also if it has arrived already.
pub fn post_to(bus: &gst::Bus) -> io::Result<()> {
    watch()?;
    let mut state = SHARED.lock();
    state.signal.iter().for_each(|signal| post(bus, *signal));
    state.bus = Some(bus.clone());
    Ok(())
}

/// Returns the signal, if one has arrived.
pub fn caught() -> Option<i32> {
    SHARED.lock().signal
}

fn post(bus: &gst::Bus, signal: i32) {
    let structure = gst::Structure::builder(INTERRUPTED).field("signal", signal).build();
    // Fails only if the pipeline is stopping.
    let _ = bus.post(gst::message::Application::new(structure));
}
