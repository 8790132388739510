// SPDX-License-Identifier: MPL-2.0

//! Watching scores of streams without end: pure state machines, which are told the time.
//!
//! Figures are kept over many frames ([`summary`]) and over the last seconds ([`window`]). Alarms do not flap
//! ([`alarm`]). Pictures that froze or went black ([`outage`]) are seen in small copies of them ([`thumbnail`]), which
//! also tell how late the distorted video is ([`align`]). Whether the machine itself is to blame, its [`load`] tells. All of
//! it becomes text for Prometheus ([`prometheus`]). What is written goes to files, devices and pipes ([`output`]).

pub mod alarm;
pub mod align;
pub mod compute_time;
pub mod load;
pub mod outage;
pub mod output;
pub mod prometheus;
pub mod summary;
pub mod thumbnail;
pub mod window;
