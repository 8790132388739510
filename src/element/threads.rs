// SPDX-License-Identifier: MPL-2.0

//! Starts the threads of the element. A panic on one of them would leave others waiting for it for ever, so each is
//! started here, where a panic becomes an [`Error`] that its owner reports.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use super::error::Error;

/// A thread, which is joined when this is dropped.
pub struct Thread(Option<JoinHandle<()>>);

impl Thread {
    /// Starts a thread. `report` is called on it if `run` panics, once everything that `run` owned is dropped.
    pub fn start(
        name: &'static str,
        report: impl FnOnce(Error) + Send + 'static,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let run = move || {
            // Data that `run` owned is gone after a panic, and data behind a mutex stays valid (see `lock`).
            if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                report(Error::Panic { thread: name, text: text(&*panic) });
            }
        };
        Ok(Self(Some(Builder::new().name(name.into()).spawn(run)?)))
    }

    /// Returns true on the thread itself.
    pub fn is_current(&self) -> bool {
        self.0.as_ref().is_some_and(|thread| thread.thread().id() == std::thread::current().id())
    }

    /// Lets the thread end without being waited for.
    pub fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The last reference to the element may go on the thread itself, which cannot wait for its own end.
        if !self.is_current()
            && let Some(thread) = self.0.take()
        {
            // A panic was reported.
            let _ = thread.join();
        }
    }
}

/// Returns the message of a panic.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").into()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_panic_is_reported_with_its_thread_and_message() {
        let (sender, receiver) = mpsc::channel();
        let thread = Thread::start(
            "hipvmaf-test",
            move |err| sender.send(err.to_string()).unwrap(),
            || panic!("number {}", 7),
        );
        drop(thread.unwrap());
        let text = receiver.recv().unwrap();
        assert!(text.contains("hipvmaf-test") && text.contains("number 7"), "{text}");
    }

    #[test]
    fn a_thread_may_drop_its_own_handle() {
        let (give, given) = mpsc::channel::<Thread>();
        let (sender, receiver) = mpsc::channel();
        let run = move || {
            let own = given.recv().unwrap();
            assert!(own.is_current());
            drop(own);
            sender.send(()).unwrap();
        };
        give.send(Thread::start("hipvmaf-test", |err| panic!("{err}"), run).unwrap()).unwrap();
        receiver.recv().unwrap();
    }
}
