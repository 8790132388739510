// SPDX-License-Identifier: MPL-2.0

//! Prometheus text for all channels: the metrics of the elements with a label for the channel, and those of the
//! sources.

use std::fmt::Write as _;

use super::state::{State, Status, Stream};

/// A metric family as text.
struct Family {
    name: String,
    /// The lines with type and help.
    header: String,
    samples: String,
}

/// Merges the texts of the elements, each with its channel, and adds the metrics of channels and sources.
pub fn render(elements: &[(String, String)], states: &[State]) -> String {
    let mut families = vec![];
    for (channel, text) in elements {
        merge(&mut families, channel, text);
    }
    families.extend(of_channels(states));
    families.extend(of_sources(states));
    let families = families.iter().filter(|family| !family.samples.is_empty());
    families.flat_map(|family| [family.header.as_str(), family.samples.as_str()]).collect()
}

/// Adds the metrics of an element. Prometheus requires that each family is in one piece.
fn merge(families: &mut Vec<Family>, channel: &str, text: &str) {
    let mut current = None;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let name = comment.split(' ').nth(1).unwrap_or_default();
            let at = families.iter().position(|family| family.name == name).unwrap_or_else(|| {
                families.push(Family { name: name.into(), header: String::new(), samples: String::new() });
                families.len() - 1
            });
            // Taken from the first element that has the family.
            if families[at].samples.is_empty() {
                families[at].header += &format!("{line}\n");
            }
            current = Some(at);
        } else if let Some(at) = current
            && let Some(end) = line.find(['{', ' '])
        {
            let (name, rest) = line.split_at(end);
            let channel = escaped(channel);
            let sample = match rest.strip_prefix('{') {
                Some(rest) => format!("{name}{{channel=\"{channel}\",{rest}\n"),
                None => format!("{name}{{channel=\"{channel}\"}}{rest}\n"),
            };
            families[at].samples += &sample;
        }
    }
}

fn of_channels(states: &[State]) -> [Family; 2] {
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

fn of_sources(states: &[State]) -> [Family; 3] {
    let family = |name, kind, help, value: fn(&Stream) -> u64| {
        let of = |state: &State, stream: &Stream| {
            let [channel, pad, label] = [&state.name, &stream.pad, &stream.label].map(|text| escaped(text));
            (format!("channel=\"{channel}\",pad=\"{pad}\",label=\"{label}\""), value(stream))
        };
        let samples = states.iter().flat_map(|state| state.streams().map(move |stream| of(state, stream)));
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

fn written(name: &str, kind: &str, help: &str, samples: impl Iterator<Item = (String, u64)>) -> Family {
    let mut text = String::new();
    for (labels, value) in samples {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
    let header = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    Family { name: name.into(), header, samples: text }
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_several_channels_are_in_one_piece() {
        let text = "# HELP a A.\n# TYPE a gauge\na{label=\"x {y}\"} 1\na{label=\"z\"} NaN\n\
                    # HELP b B.\n# TYPE b summary\nb_count 2\n";
        let elements = [("one".into(), text.to_owned()), ("t\"wo".into(), text.to_owned())];
        let expected = r#"# HELP a A.
# TYPE a gauge
a{channel="one",label="x {y}"} 1
a{channel="one",label="z"} NaN
a{channel="t\"wo",label="x {y}"} 1
a{channel="t\"wo",label="z"} NaN
# HELP b B.
# TYPE b summary
b_count{channel="one"} 2
b_count{channel="t\"wo"} 2
"#;
        assert_eq!(render(&elements, &[]), expected);
    }

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
        state.renditions = vec![Stream { restarts: 2, failures: 3, ..low }];
        let text = render(&[], &[state]);
        for line in [
            "hipvmaf_channel_up{channel=\"a\"} 1",
            "hipvmaf_source_up{channel=\"a\",pad=\"ref_sink\",label=\"reference\"} 0",
            "hipvmaf_source_up{channel=\"a\",pad=\"dist_sink\",label=\"low\"} 1",
            "hipvmaf_source_restarts_total{channel=\"a\",pad=\"dist_sink\",label=\"low\"} 2",
            "hipvmaf_source_failures_total{channel=\"a\",pad=\"dist_sink\",label=\"low\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
