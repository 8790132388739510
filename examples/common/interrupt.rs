// SPDX-License-Identifier: MPL-2.0

//! Ctrl-C and SIGTERM: the first is told on the bus, for the program to end as it does at the end of the stream. The
//! second ends it at once.

use std::io;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

const INTERRUPTED: &str = "interrupted";

/// Tells of the first signal on the bus.
pub fn watch(bus: &gst::Bus) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let bus = bus.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signals = signals.forever();
        if let Some(signal) = signals.next() {
            let structure = gst::Structure::builder(INTERRUPTED).field("signal", signal).build();
            // Refused only by a pipeline that stops.
            let _ = bus.post(gst::message::Application::new(structure));
        }
        if let Some(signal) = signals.next() {
            // Fails for signals that cannot be caught, and so do not come here.
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}
