// SPDX-License-Identifier: MPL-2.0

//! Prometheus text for all channels: the figures of the elements with a label for the channel, and those of the
//! sources.

use std::fmt::{Display, Write as _};

use watch::prometheus::{self, escaped};

use super::alarms::Severity;
use super::history::Shown;
use super::state::{State, Status, Stream};
use super::webhook::Delivery;

/// Formats the figures of the channels: of their elements, of the channels and of their sources.
pub fn render(states: &[State], muted: &[bool], history: &Shown, deliveries: &[Delivery]) -> String {
    let of_element = |state: &State| Some((state.name.clone(), state.element.upgrade()?.figures()?));
    let elements: Vec<_> = states.iter().filter_map(of_element).collect();
    let elements: Vec<_> = elements.iter().map(|(name, figures)| (Some(name.as_str()), figures)).collect();
    [prometheus::render_channels(&elements)]
        .into_iter()
        .chain(of_channels(states))
        .chain(of_sources(states))
        .chain(of_audio(states))
        .chain([of_quality(states)])
        .chain([of_mutes(states, muted), of_alarms(states)])
        .chain(of_history(history))
        .chain(of_webhooks(deliveries))
        .collect()
}

fn of_channels(states: &[State]) -> [String; 2] {
    let family = |name, kind, help, value: fn(&State) -> u64| {
        let samples =
            states.iter().map(|state| (format!("channel=\"{}\"", escaped(&state.name)), value(state)));
        written(name, kind, help, samples)
    };
    [
        family(
            "hipvmaf_channel_up",
            "gauge",
            "1 if the channel is being scored, 0 if it is down.",
            |state| u64::from(state.status != Status::Down),
        ),
        family("hipvmaf_channel_restarts_total", "counter", "Restarts of the channel.", |state| {
            state.restarts
        }),
    ]
}

fn of_sources(states: &[State]) -> [String; 3] {
    let family = |name, kind, help, value: fn(&Stream) -> u64| {
        let samples = states
            .iter()
            .flat_map(|state| state.streams().map(move |stream| (labels(state, stream), value(stream))));
        written(name, kind, help, samples)
    };
    [
        family("hipvmaf_source_up", "gauge", "1 if the source delivers frames, otherwise 0.", |stream| {
            u64::from(stream.status == Status::Running)
        }),
        family("hipvmaf_source_restarts_total", "counter", "Restarts of the source.", |stream| {
            stream.restarts
        }),
        family("hipvmaf_source_failures_total", "counter", "Failures of the source.", |stream| {
            stream.failures
        }),
    ]
}

/// Formats the audio of the streams whose audio is watched.
fn of_audio(states: &[State]) -> [String; 2] {
    let all =
        || states.iter().flat_map(|state| state.streams().map(move |stream| (labels(state, stream), stream)));
    let present = all().filter_map(|(labels, stream)| Some((labels, u64::from(stream.audio?))));
    let loudness = all().filter_map(|(labels, stream)| Some((labels, stream.loudness?)));
    [
        written("hipvmaf_audio_up", "gauge", "1 if there is audio, otherwise 0.", present),
        written("hipvmaf_audio_loudness_lufs", "gauge", "Short-term loudness.", loudness),
    ]
}

fn of_quality(states: &[State]) -> String {
    let all = states.iter().flat_map(|state| state.renditions.iter().map(move |stream| (state, stream)));
    let quality = all.filter_map(|(state, stream)| Some((labels(state, stream), stream.quality?)));
    written("hipvmaf_quality", "gauge", "Composite quality of the last window, from 0 to 100.", quality)
}

/// Formats the labels of a stream.
fn labels(state: &State, stream: &Stream) -> String {
    let [channel, pad, label] = [&state.name, &stream.pad, &stream.label].map(|text| escaped(text));
    format!("channel=\"{channel}\",pad=\"{pad}\",label=\"{label}\"")
}

fn of_mutes(states: &[State], muted: &[bool]) -> String {
    let samples = states.iter().zip(muted);
    let samples =
        samples.map(|(state, muted)| (format!("channel=\"{}\"", escaped(&state.name)), u64::from(*muted)));
    written("hipvmaf_channel_muted", "gauge", "1 if alarms of the channel are not sent.", samples)
}

/// Counts active alarms that do not follow from another.
fn of_alarms(states: &[State]) -> String {
    let severities =
        [("critical", Severity::Critical), ("major", Severity::Major), ("minor", Severity::Minor)];
    let samples = states.iter().flat_map(|state| {
        severities.map(|(name, severity)| {
            let channel = escaped(&state.name);
            let alarms = state.alarms.iter().filter(|alarm| alarm.is_announced());
            let count = alarms.filter(|alarm| alarm.about.severity == severity).count();
            (format!("channel=\"{channel}\",severity=\"{name}\""), count as u64)
        })
    });
    written("hipvmaf_channel_alarms", "gauge", "Active alarms that follow from no other.", samples)
}

fn of_webhooks(deliveries: &[Delivery]) -> [String; 4] {
    let family = |name, kind, help, value: fn(&Delivery) -> u64| {
        let samples = deliveries.iter().map(|of| (format!("host=\"{}\"", escaped(&of.host)), value(of)));
        written(name, kind, help, samples)
    };
    [
        family("hipvmaf_webhook_delivered_total", "counter", "Delivered alarms.", |of| of.delivered),
        family("hipvmaf_webhook_failures_total", "counter", "Failed attempts to deliver alarms.", |of| {
            of.failures
        }),
        family("hipvmaf_webhook_dropped_total", "counter", "Alarms that were given up.", |of| of.dropped),
        family("hipvmaf_webhook_waiting", "gauge", "Alarms that wait to be delivered.", |of| of.waiting),
    ]
}

fn of_history(history: &Shown) -> [String; 2] {
    let one = |value| std::iter::once((String::new(), value));
    [
        written(
            "hipvmaf_history_up",
            "gauge",
            "1 if the history is written, 0 if it waits in memory.",
            one(u64::from(history.up)),
        ),
        written(
            "hipvmaf_history_lost_total",
            "counter",
            "Windows and events that are not in the history.",
            one(history.lost),
        ),
    ]
}

/// Formats a family, unless it has no samples.
fn written<T: Display>(
    name: &str,
    kind: &str,
    help: &str,
    samples: impl Iterator<Item = (String, T)>,
) -> String {
    let mut text = String::new();
    for (labels, value) in samples {
        if text.is_empty() {
            text = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        // Writing to a string does not fail.
        let _ = match labels.is_empty() {
            true => writeln!(text, "{name} {value}"),
            false => writeln!(text, "{name}{{{labels}}} {value}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_their_own_labels() {
        let mut state = State { name: "a".into(), ..State::default() };
        state.reference = Stream { label: "reference".into(), pad: "ref_sink".into(), ..Stream::default() };
        let low = Stream {
            label: "low".into(),
            pad: "dist_sink".into(),
            status: Status::Running,
            ..Stream::default()
        };
        state.renditions =
            vec![Stream { restarts: 2, failures: 3, audio: Some(true), loudness: Some(-23.5), ..low }];
        let history = Shown { up: false, reason: Some("full".into()), waiting: 1, lost: 4 };
        state.raise("low", "overload", String::new(), None);
        let host = "https://h".into();
        let delivery = Delivery { host, delivered: 1, failures: 5, ..Delivery::default() };
        let text = render(&[state], &[true], &history, &[delivery]);
        for line in [
            "hipvmaf_channel_muted{channel=\"a\"} 1",
            "hipvmaf_channel_alarms{channel=\"a\",severity=\"critical\"} 0",
            "hipvmaf_channel_alarms{channel=\"a\",severity=\"minor\"} 1",
            "hipvmaf_webhook_failures_total{host=\"https://h\"} 5",
            "hipvmaf_history_up 0",
            "hipvmaf_history_lost_total 4",
            "hipvmaf_channel_up{channel=\"a\"} 1",
            "hipvmaf_audio_up{channel=\"a\",pad=\"dist_sink\",label=\"low\"} 1",
            "hipvmaf_audio_loudness_lufs{channel=\"a\",pad=\"dist_sink\",label=\"low\"} -23.5",
            "hipvmaf_source_up{channel=\"a\",pad=\"ref_sink\",label=\"reference\"} 0",
            "hipvmaf_source_up{channel=\"a\",pad=\"dist_sink\",label=\"low\"} 1",
            "hipvmaf_source_restarts_total{channel=\"a\",pad=\"dist_sink\",label=\"low\"} 2",
            "hipvmaf_source_failures_total{channel=\"a\",pad=\"dist_sink\",label=\"low\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
