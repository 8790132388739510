// SPDX-License-Identifier: MPL-2.0

//! Measurements of several GPUs at the same time, each with its own sessions.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use engine::backend::hip;
use engine::plan::Plan;
use gpu::{Device, Selection};
use serde::Serialize;

use crate::Args;
use crate::measure::{Latency, Rates, Setting, Stream, WARM_UP, run_all};

/// The GPUs to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// Every usable GPU.
    All,
    /// The GPUs with these numbers.
    These(Vec<i32>),
}

impl std::str::FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|number| *number >= 0);
        match text {
            "all" => Ok(Self::All),
            _ => text
                .split(',')
                .map(number)
                .collect::<Option<Vec<i32>>>()
                .map(Self::These)
                .ok_or("neither all nor numbers like 0,1".into()),
        }
    }
}

impl Devices {
    /// Opens the GPUs. `selection` restricts the vendor.
    fn open(&self, selection: &Selection) -> Result<Vec<Arc<Device>>, Box<dyn Error>> {
        match self {
            Self::These(numbers) => {
                let of = |number: &i32| hip::open(&Selection { ordinal: Some(*number), ..*selection });
                Ok(numbers.iter().map(of).collect::<Result<_, _>>()?)
            }
            Self::All => {
                let mut open = vec![];
                for info in
                    gpu::ranked(gpu::selected(selection)).into_iter().filter(|info| hip::supports(info))
                {
                    match hip::open(&info.selection()) {
                        Ok(device) => open.push(device),
                        Err(err) => eprintln!("{} {}: {info} is skipped: {err}", info.vendor, info.ordinal),
                    }
                }
                if open.is_empty() {
                    // Returns the error.
                    open.push(hip::open(selection)?);
                }
                Ok(open)
            }
        }
    }
}

/// The result of one GPU.
#[derive(Serialize)]
struct Row {
    vendor: String,
    number: i32,
    device: String,
    fps: Rates,
    latency: Latency,
}

/// The results of several GPUs at the same time.
#[derive(Serialize)]
pub struct Report {
    devices: Vec<Row>,
    /// All GPUs together.
    fps: Rates,
    #[serde(flatten)]
    setting: Setting,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { width, height, depth, models, memory, streams, in_flight, renditions, .. } =
            &self.setting;
        let models = models.join(", ");
        writeln!(f, "{width}x{height}, {depth} bit, {models}; frames in {memory} memory")?;
        writeln!(f, "on each GPU: streams {streams}, in flight {in_flight}, renditions {renditions}")?;
        for Row { vendor, number, device, fps, latency } in &self.devices {
            writeln!(f, "{vendor} {number}: {device}: {fps}; latency {latency}")?;
        }
        writeln!(f, "all {}: {}", self.devices.len(), self.fps)
    }
}

/// Measures these GPUs at the same time.
pub fn measure(args: &Args, plan: &Arc<Plan>, devices: &Devices) -> Result<Report, Box<dyn Error>> {
    let devices = devices.open(&args.selection())?;
    let each = |device| (0..args.streams).map(move |_| Stream::new(args, plan, Some(device)));
    // The streams of a GPU are consecutive.
    let mut streams = devices.iter().flat_map(each).collect::<Result<Vec<_>, _>>()?;
    let mut latencies = vec![vec![]; devices.len()];
    let mut rates = vec![vec![]; devices.len() + 1];
    run_all(&mut streams, args, args.seconds().min(WARM_UP))?;
    for _ in 0..args.runs() {
        let start = Instant::now();
        let latest = run_all(&mut streams, args, args.seconds())?;
        let elapsed = start.elapsed().as_secs_f64();
        let latest: Vec<_> = latest.chunks(args.streams).map(<[_]>::concat).collect();
        let rate = |latencies: &Vec<f64>| (latencies.len() * args.renditions) as f64 / elapsed;
        let each: Vec<_> = latest.iter().map(rate).collect();
        rates[devices.len()].push(each.iter().sum());
        rates.iter_mut().zip(each).for_each(|(rates, rate)| rates.push(rate));
        latencies.iter_mut().zip(latest).for_each(|(all, latest)| all.extend(latest));
    }
    let mut rates = rates.into_iter().map(Rates::new);
    let row = |((device, fps), latencies): ((&Arc<Device>, Rates), Vec<f64>)| {
        let info = device.info();
        let (vendor, number, device) = (info.vendor.to_string(), info.ordinal, info.to_string());
        Row { vendor, number, device, fps, latency: Latency::new(latencies) }
    };
    let rows = devices.iter().zip(rates.by_ref()).zip(latencies).map(row).collect();
    Ok(Report {
        devices: rows,
        fps: rates.next().unwrap_or(Rates::new(vec![])),
        setting: Setting::new(args, args.memory),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_all_or_have_numbers() {
        assert_eq!("all".parse(), Ok(Devices::All));
        assert_eq!("0,3".parse(), Ok(Devices::These(vec![0, 3])));
        for wrong in ["", "0,", "-1", "every", "0 1"] {
            assert!(wrong.parse::<Devices>().is_err(), "{wrong}");
        }
    }
}
