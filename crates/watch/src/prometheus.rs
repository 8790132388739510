// SPDX-License-Identifier: MPL-2.0

//! Metrics for Prometheus, in text format 0.0.4.
//!
//! The textfile collector of node_exporter reads a file of it, which is replaced atomically. Two elements on one host
//! need different pad names, because the collector rejects duplicate samples.

use std::fmt::Write as _;

/// Metrics of a distorted pad.
#[derive(Clone, Debug, Default)]
pub struct Pad {
    /// Name of the pad.
    pub name: String,
    /// Label of its stream.
    pub label: String,
    /// Statistics of the last window, or since the start without windows, by model.
    pub scores: Vec<Score>,
    /// Frames since the start, by result: reference frames that were `scored`, `repeated` (scored with an earlier
    /// distorted frame), `unpaired`, `skipped` or `aligning` (their score does not count), and distorted frames that
    /// were `unmatched`.
    pub frames: Vec<(&'static str, u64)>,
    /// Enabled alarms, true while raised.
    pub alarms: Vec<(&'static str, bool)>,
    /// Delay of the distorted video in seconds, if it is known.
    pub offset: Option<f64>,
    /// Time of the last score, in seconds since 1970.
    pub last_score: Option<f64>,
    /// Frames since the start that the CPU has verified.
    pub verified: u64,
    /// Verified frames with a different result.
    pub wrong: u64,
}

/// A statistic of a model's scores.
#[derive(Clone, Debug)]
pub struct Score {
    /// Name of the model.
    pub model: String,
    /// `mean`, `min`, `p5` and so on.
    pub stat: &'static str,
    /// The value.
    pub value: f64,
}

/// Compute time of groups of frames, from submission to result, in seconds.
#[derive(Clone, Debug, Default)]
pub struct ComputeTime {
    /// Quantiles (0 to 1) of the latest groups with their values in seconds.
    pub quantiles: Vec<(f64, f64)>,
    /// Sum for all groups in seconds.
    pub sum: f64,
    /// Number of groups.
    pub count: u64,
}

/// All exported metrics.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Metrics of each distorted pad.
    pub pads: Vec<Pad>,
    /// Compute time; `None` before the first group.
    pub compute_time: Option<ComputeTime>,
    /// Groups since the start whose verification was skipped for lack of computing time.
    pub not_verified: u64,
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Metrics of a channel, whose name is a label of each sample unless it has none.
pub type Named<'a> = (Option<&'a str>, &'a Figures);

/// Returns the labels of a sample of a channel.
fn labels<'a>(channel: Option<&'a str>, others: &[(&'static str, &'a str)]) -> Labels<'a> {
    channel.map(|channel| ("channel", channel)).into_iter().chain(others.iter().copied()).collect()
}

impl Pad {
    /// Returns the labels for a sample of this pad.
    fn labels<'a, const N: usize>(
        &'a self,
        channel: Option<&'a str>,
        others: [(&'static str, &'a str); N],
    ) -> Labels<'a> {
        labels(channel, &[("pad", &*self.name), ("label", &*self.label)]).into_iter().chain(others).collect()
    }
}

/// Formats the metrics.
pub fn render(figures: &Figures) -> String {
    render_channels(&[(None, figures)])
}

/// Formats the metrics of channels. Each family is in one piece, as Prometheus requires.
pub fn render_channels(channels: &[Named]) -> String {
    let pads = || channels.iter().flat_map(|(channel, of)| of.pads.iter().map(|pad| (*channel, pad)));
    let mut text = Text::default();
    text.family(
        "hipvmaf_score",
        "gauge",
        "Score of the last window, or of all frames since the start where no window is set.",
    );
    for (channel, pad) in pads() {
        for Score { model, stat, value } in &pad.scores {
            text.sample("", pad.labels(channel, [("model", model), ("stat", *stat)]), *value);
        }
    }
    text.family("hipvmaf_frames_total", "counter", "Frames by what became of them.");
    for (channel, pad) in pads() {
        for (result, count) in &pad.frames {
            text.sample("", pad.labels(channel, [("result", *result)]), *count as f64);
        }
    }
    text.family("hipvmaf_alarm", "gauge", "Whether an alarm is raised: 0 or 1.");
    for (channel, pad) in pads() {
        for (kind, raised) in &pad.alarms {
            text.sample("", pad.labels(channel, [("kind", *kind)]), f64::from(*raised));
        }
    }
    text.family("hipvmaf_offset_seconds", "gauge", "Delay of the distorted video against the reference.");
    for (channel, pad) in pads() {
        if let Some(offset) = pad.offset {
            text.sample("", pad.labels(channel, []), offset);
        }
    }
    text.family("hipvmaf_compute_seconds", "summary", "Time that a group of frames takes to compute.");
    for (channel, figures) in channels {
        let Some(time) = &figures.compute_time else { continue };
        for (quantile, seconds) in &time.quantiles {
            text.sample("", labels(*channel, &[("quantile", &quantile.to_string())]), *seconds);
        }
        text.sample("_sum", labels(*channel, &[]), time.sum);
        text.sample("_count", labels(*channel, &[]), time.count as f64);
    }
    text.family(
        "hipvmaf_verified_total",
        "counter",
        "Frames scored on a GPU that the CPU has computed again.",
    );
    for (channel, pad) in pads() {
        text.sample("", pad.labels(channel, []), pad.verified as f64);
    }
    text.family("hipvmaf_wrong_total", "counter", "Frames for which the CPU came to something else.");
    for (channel, pad) in pads() {
        text.sample("", pad.labels(channel, []), pad.wrong as f64);
    }
    text.family(
        "hipvmaf_not_verified_total",
        "counter",
        "Groups that were to be computed again and were not.",
    );
    for (channel, figures) in channels.iter().filter(|(_, figures)| !figures.pads.is_empty()) {
        text.sample("", labels(*channel, &[]), figures.not_verified as f64);
    }
    text.family("hipvmaf_last_score_timestamp_seconds", "gauge", "When the last score was made.");
    for (channel, pad) in pads() {
        if let Some(time) = pad.last_score {
            text.sample("", pad.labels(channel, []), time);
        }
    }
    text.out
}

/// The text so far, and the current metric family.
#[derive(Default)]
struct Text {
    out: String,
    family: &'static str,
    /// Header of the family before its first sample; families without samples are omitted.
    header: Option<(&'static str, &'static str)>,
}

impl Text {
    fn family(&mut self, name: &'static str, kind: &'static str, help: &'static str) {
        self.family = name;
        self.header = Some((kind, help));
    }

    fn sample(&mut self, suffix: &str, labels: Labels, value: f64) {
        let name = self.family;
        if let Some((kind, help)) = self.header.take() {
            self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
        }
        let labels = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        match value {
            f64::INFINITY => self.line(format_args!("{name}{suffix}{labels} +Inf")),
            f64::NEG_INFINITY => self.line(format_args!("{name}{suffix}{labels} -Inf")),
            // Rust prints the shortest text that parses to the same number, and NaN.
            value => self.line(format_args!("{name}{suffix}{labels} {value}")),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments) {
        // Writing to a string does not fail.
        let _ = writeln!(self.out, "{line}");
    }
}

/// Escapes the value of a label.
pub fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figures() -> Figures {
        Figures {
            pads: vec![Pad {
                name: "dist_sink".into(),
                label: "720p \"main\"".into(),
                scores: vec![
                    Score { model: "vmaf_v0.6.1".into(), stat: "mean", value: 93.25 },
                    Score { model: "vmaf_v0.6.1".into(), stat: "p5", value: f64::NAN },
                ],
                frames: vec![("scored", 1500), ("unpaired", 2)],
                alarms: vec![("freeze", false), ("dropout", true)],
                offset: Some(-0.04),
                last_score: Some(1_790_000_000.25),
                verified: 15,
                wrong: 1,
            }],
            compute_time: Some(ComputeTime {
                quantiles: vec![(0.5, 0.001), (0.99, 0.002)],
                sum: 1.5,
                count: 1500,
            }),
            not_verified: 2,
        }
    }

    #[test]
    fn text_is_that_of_the_format() {
        let expected = r#"# HELP hipvmaf_score Score of the last window, or of all frames since the start where no window is set.
# TYPE hipvmaf_score gauge
hipvmaf_score{pad="dist_sink",label="720p \"main\"",model="vmaf_v0.6.1",stat="mean"} 93.25
hipvmaf_score{pad="dist_sink",label="720p \"main\"",model="vmaf_v0.6.1",stat="p5"} NaN
# HELP hipvmaf_frames_total Frames by what became of them.
# TYPE hipvmaf_frames_total counter
hipvmaf_frames_total{pad="dist_sink",label="720p \"main\"",result="scored"} 1500
hipvmaf_frames_total{pad="dist_sink",label="720p \"main\"",result="unpaired"} 2
# HELP hipvmaf_alarm Whether an alarm is raised: 0 or 1.
# TYPE hipvmaf_alarm gauge
hipvmaf_alarm{pad="dist_sink",label="720p \"main\"",kind="freeze"} 0
hipvmaf_alarm{pad="dist_sink",label="720p \"main\"",kind="dropout"} 1
# HELP hipvmaf_offset_seconds Delay of the distorted video against the reference.
# TYPE hipvmaf_offset_seconds gauge
hipvmaf_offset_seconds{pad="dist_sink",label="720p \"main\""} -0.04
# HELP hipvmaf_compute_seconds Time that a group of frames takes to compute.
# TYPE hipvmaf_compute_seconds summary
hipvmaf_compute_seconds{quantile="0.5"} 0.001
hipvmaf_compute_seconds{quantile="0.99"} 0.002
hipvmaf_compute_seconds_sum 1.5
hipvmaf_compute_seconds_count 1500
# HELP hipvmaf_verified_total Frames scored on a GPU that the CPU has computed again.
# TYPE hipvmaf_verified_total counter
hipvmaf_verified_total{pad="dist_sink",label="720p \"main\""} 15
# HELP hipvmaf_wrong_total Frames for which the CPU came to something else.
# TYPE hipvmaf_wrong_total counter
hipvmaf_wrong_total{pad="dist_sink",label="720p \"main\""} 1
# HELP hipvmaf_not_verified_total Groups that were to be computed again and were not.
# TYPE hipvmaf_not_verified_total counter
hipvmaf_not_verified_total 2
# HELP hipvmaf_last_score_timestamp_seconds When the last score was made.
# TYPE hipvmaf_last_score_timestamp_seconds gauge
hipvmaf_last_score_timestamp_seconds{pad="dist_sink",label="720p \"main\""} 1790000000.25
"#;
        assert_eq!(render(&figures()), expected);
        assert_eq!(render(&Figures::default()), "");
    }

    #[test]
    fn families_are_not_torn_apart_by_pads_and_channels() {
        let mut figures = figures();
        figures.pads.push(figures.pads[0].clone());
        let text = render_channels(&[(Some("one"), &figures), (Some("t\"wo"), &figures)]);
        assert_eq!(text.matches("# TYPE hipvmaf_score ").count(), 1);
        assert_eq!(text.matches("hipvmaf_offset_seconds{").count(), 4);
        for line in [
            r#"hipvmaf_offset_seconds{channel="t\"wo",pad="dist_sink",label="720p \"main\""} -0.04"#,
            r#"hipvmaf_compute_seconds{channel="one",quantile="0.5"} 0.001"#,
            r#"hipvmaf_compute_seconds_count{channel="one"} 1500"#,
            r#"hipvmaf_not_verified_total{channel="one"} 2"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    /// Parses a quoted label value as Prometheus does, and returns the rest of the text.
    fn unescape(quoted: &str) -> Option<(String, &str)> {
        let mut value = String::new();
        let mut chars = quoted.strip_prefix('"')?.chars();
        loop {
            match chars.next()? {
                '"' => return Some((value, chars.as_str())),
                '\n' => return None,
                '\\' => value.push(match chars.next()? {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                c => value.push(c),
            }
        }
    }

    proptest! {
        #[test]
        fn labels_and_values_read_back(label: String, value: f64) {
            let score = Score { model: "m".into(), stat: "mean", value };
            let pad = Pad { name: "p".into(), label: label.clone(), scores: vec![score], ..Pad::default() };
            let text = render(&Figures { pads: vec![pad], ..Figures::default() });
            let (_, sample) = text.split_once("gauge\nhipvmaf_score{pad=\"p\",label=").unwrap();
            let (read, rest) = unescape(sample).unwrap();
            prop_assert_eq!(read, label);
            let number = rest.strip_prefix(",model=\"m\",stat=\"mean\"} ").unwrap().lines().next().unwrap();
            let number: f64 = number.parse().unwrap();
            prop_assert!(number == value || (number.is_nan() && value.is_nan()));
        }
    }
}
