// SPDX-License-Identifier: MPL-2.0

//! The summary of all titles, worst first: `summary.csv` for other programs, and `summary.html` for readers.

use std::fmt::Write as _;
use std::path::Path;

use score::error::Error;
use score::{Metric, Pooled, Scores, Unit};

use super::manifest::{Title, replace};

const CSS: &str = include_str!("../assets/summary.css");
const PAGE: &str = include_str!("../assets/summary.html");

/// A title of the list.
pub struct Row {
    name: String,
    reference: String,
    distorted: String,
    state: State,
    /// Damage of the videos, or the reason why there are no scores.
    notes: String,
    scored: u64,
    unpaired: u64,
    /// Figures of each metric; none if there are no scores.
    figures: Vec<Figure>,
}

/// State of a title's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Complete,
    Damaged,
    Missing,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Damaged => "damaged",
            Self::Missing => "missing",
        }
    }
}

/// Figures of a model or a feature that has some.
struct Figure {
    metric: Metric,
    pooled: Pooled,
    /// Figure of all frames together, if it is no mean.
    overall: Option<f64>,
}

/// A figure of frames by its name.
type Statistic = (&'static str, fn(&Pooled) -> f64);

/// The figures of frames in the summary, named as in the summary of `score`.
const STATISTICS: [Statistic; 5] = [
    ("mean", |pooled| pooled.mean),
    ("min", |pooled| pooled.min),
    ("p1", |pooled| pooled.p1),
    ("p5", |pooled| pooled.p5),
    ("p50", |pooled| pooled.p50),
];

impl Figure {
    /// Returns the figure that says most about all frames: the mean, and of JODs that of all frames together.
    fn value(&self) -> f64 {
        self.overall.filter(|_| self.metric.unit == Unit::Jod).unwrap_or(self.pooled.mean)
    }

    /// Returns the value of the worst frame.
    fn worst(&self) -> f64 {
        if self.metric.more_is_worse() { self.pooled.max } else { self.pooled.min }
    }

    /// Returns a number by which titles are sorted, worst first, also those of different metrics.
    fn rank(&self) -> f64 {
        self.metric.unit.full().map_or(-self.value(), |full| self.value() / full)
    }

    /// Returns the fields for other programs, with their names.
    fn fields(&self) -> Vec<(String, f64)> {
        let statistics = STATISTICS.iter();
        let statistics =
            statistics.map(|(name, of)| (format!("{}_{name}", self.metric.name), of(&self.pooled)));
        let mut fields: Vec<_> = statistics.collect();
        match self.metric.unit {
            Unit::Jod => fields[0] = (self.metric.aggregate(), self.value()),
            _ => fields.extend(self.overall.map(|overall| (self.metric.aggregate(), overall))),
        }
        fields
    }
}

impl Row {
    /// Returns a title with results.
    pub fn scored(title: &Title, scores: &Scores, damaged: &[String], [scored, unpaired]: [u64; 2]) -> Self {
        let figures = scores.all_figures().into_iter();
        let figures = figures
            .filter_map(|of| Some(Figure { metric: of.metric, pooled: of.frames?, overall: of.overall }));
        let state = if damaged.is_empty() { State::Complete } else { State::Damaged };
        Self {
            state,
            notes: damaged.join("; "),
            scored,
            unpaired,
            figures: figures.collect(),
            ..Self::missing(title, String::new())
        }
    }

    /// Returns a title without results.
    pub fn missing(title: &Title, why: String) -> Self {
        Self {
            name: title.name.clone(),
            reference: title.reference.path.clone(),
            distorted: title.distorted.path.clone(),
            state: State::Missing,
            notes: why,
            scored: 0,
            unpaired: 0,
            figures: vec![],
        }
    }
}

/// Writes the summary into a folder.
pub fn write(folder: &Path, mut rows: Vec<Row>) -> Result<(), Error> {
    // Titles without scores come last.
    let rank = |row: &Row| row.figures.first().map_or(f64::INFINITY, Figure::rank);
    rows.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    for (name, text) in [("summary.csv", csv(&rows)?), ("summary.html", html(&rows))] {
        let path = folder.join(name);
        replace(&path, text.as_bytes())
            .map_err(|error| Error::Failed(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}

/// Returns values without repetitions, in the order in which they come first.
fn unique<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(vec![], |mut all, value| {
        if !all.contains(&value) {
            all.push(value);
        }
        all
    })
}

fn csv(rows: &[Row]) -> Result<String, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Failed(format!("cannot write the summary: {error}"));
    let columns =
        unique(rows.iter().flat_map(|row| &row.figures).flat_map(Figure::fields).map(|(name, _)| name));
    let mut out = csv::Writer::from_writer(vec![]);
    let head = ["name", "state", "reference", "distorted", "frames", "unpaired"];
    let head = head.into_iter().chain(columns.iter().map(String::as_str)).chain(["notes"]);
    out.write_record(head).map_err(|error| failed(&error))?;
    for row in rows {
        let fields: Vec<_> = row.figures.iter().flat_map(Figure::fields).collect();
        let field = |column: &String| {
            let value = fields.iter().find(|(name, _)| name == column).map(|(_, value)| *value);
            value.filter(|value| value.is_finite()).map(|value| format!("{value:.6}")).unwrap_or_default()
        };
        let Row { name, reference, distorted, .. } = row;
        let first = [name, row.state.name(), reference, distorted].map(str::to_owned);
        let counts = [row.scored, row.unpaired].map(|count| count.to_string());
        let fields = first.into_iter().chain(counts).chain(columns.iter().map(field));
        out.write_record(fields.chain([row.notes.clone()])).map_err(|error| failed(&error))?;
    }
    let bytes = out.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}

fn html(rows: &[Row]) -> String {
    let is = |state: State| rows.iter().filter(move |row| row.state == state).count();
    let (damaged, missing) = (is(State::Damaged), is(State::Missing));
    let mut about = format!("{} titles, {} with scores", rows.len(), rows.len() - missing);
    if damaged > 0 {
        let _ = write!(about, ", {damaged} of them damaged");
    }
    let notice = match missing {
        0 => String::new(),
        1 => "<p class=\"notice\">1 title has no scores. It is at the end, with the reason.</p>".into(),
        _ => format!(
            "<p class=\"notice\">{missing} titles have no scores. They are at the end, with the reasons.</p>"
        ),
    };
    let metrics = unique(rows.iter().flat_map(|row| &row.figures).map(|figure| figure.metric.name.as_str()));
    let group = |name: &&str| format!("<th class=\"number\" colspan=\"2\">{}</th>", escaped(name));
    let groups: String = metrics.iter().map(group).collect();
    let heads = "<th class=\"number\">mean</th><th class=\"number\">lowest</th>".repeat(metrics.len());
    let lines: String = rows.iter().map(|row| line(row, &metrics)).collect();
    let parts = [
        ("base", score::BASE_CSS),
        ("css", CSS),
        ("about", &about),
        ("notice", &notice),
        ("groups", &groups),
        ("heads", &heads),
        ("rows", &lines),
    ];
    PAGE.split("{{").fold(String::new(), |page, piece| match piece.split_once("}}") {
        Some((name, rest)) => {
            page + parts.iter().find(|(part, _)| *part == name).map_or("", |(_, text)| text) + rest
        }
        None => page + piece,
    })
}

/// Returns a row of the table.
fn line(row: &Row, metrics: &[&str]) -> String {
    let cell = |value: Option<f64>, decimals: usize| match value.filter(|value| value.is_finite()) {
        Some(value) => format!("<td class=\"number\">{value:.decimals$}</td>"),
        None => "<td class=\"number\">–</td>".into(),
    };
    let figures: String = metrics
        .iter()
        .map(|name| {
            let figure = row.figures.iter().find(|figure| figure.metric.name == *name);
            let decimals = figure.map_or(0, |figure| figure.metric.unit.decimals());
            cell(figure.map(Figure::value), decimals) + &cell(figure.map(Figure::worst), decimals)
        })
        .collect();
    let name = match row.state {
        State::Missing => escaped(&row.name),
        _ => format!("<a href=\"{}.json\">{}</a>", address(&row.name), escaped(&row.name)),
    };
    let notes = match row.notes.as_str() {
        "" => String::new(),
        notes => format!("<p class=\"note\">{}</p>", escaped(notes)),
    };
    let class = if row.state == State::Complete { "" } else { " class=\"warn\"" };
    format!(
        "<tr{class}><th scope=\"row\">{name}{notes}</th>{figures}<td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
        row.scored, row.unpaired
    )
}

/// Returns a text as HTML, also for attributes.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut html, c| {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            // A text in braces is a placeholder of the page.
            '{' => html.push_str("&#123;"),
            c => html.push(c),
        }
        html
    })
}

/// Returns a file name as a relative address.
fn address(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use score::Frame;

    use super::*;

    fn title(name: &str) -> Title {
        let text = format!(
            r#"{{"name": {}, "reference": {{"path": "/r", "bytes": 0, "modified": 0, "sha256": ""}},
            "distorted": {{"path": "/d, 1", "bytes": 0, "modified": 0, "sha256": ""}}, "options": [], "models": [],
            "frames": 0, "lead_in": 0, "look_ahead": 0, "chunks": []}}"#,
            serde_json::Value::from(name)
        );
        serde_json::from_str(&text).unwrap()
    }

    fn scored(name: &str, model: &str, score: f64, damaged: &[String]) -> Row {
        let frame = |index| Frame {
            index,
            time: gst::ClockTime::ZERO,
            scores: vec![score + f64::from(index), 8.0, 40.0],
        };
        let scores = Scores {
            label: String::new(),
            models: vec![model.into()],
            features: vec!["cvvdp_q".into(), "psnr_y".into()],
            frames: (0..3).map(frame).collect(),
            offset: None,
            rung: score::Rung::default(),
            pairing: None,
            aggregates: vec![("cvvdp".into(), 9.5), ("apsnr_y".into(), 39.0)],
            sections: vec![],
        };
        Row::scored(&title(name), &scores, damaged, [3, 1])
    }

    fn files(rows: Vec<Row>) -> [String; 2] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), rows).unwrap();
        ["summary.csv", "summary.html"].map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap())
    }

    #[test]
    fn the_worst_title_comes_first_and_titles_without_scores_last() {
        let [csv, html] = files(vec![
            Row::missing(&title("lost"), "no \"file\"".into()),
            scored("good", "vmaf", 90.0, &[]),
            scored("bad", "vmaf_4k", 20.0, &["/d: it is damaged".into()]),
        ]);
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(
            lines[0],
            "name,state,reference,distorted,frames,unpaired,vmaf_4k_mean,vmaf_4k_min,vmaf_4k_p1,vmaf_4k_p5,vmaf_4k_p50,\
             cvvdp,cvvdp_min,cvvdp_p1,cvvdp_p5,cvvdp_p50,psnr_y_mean,psnr_y_min,psnr_y_p1,psnr_y_p5,psnr_y_p50,apsnr_y,\
             vmaf_mean,vmaf_min,vmaf_p1,vmaf_p5,vmaf_p50,notes"
        );
        assert!(lines[1].starts_with("bad,damaged,/r,\"/d, 1\",3,1,21.000000,"), "{}", lines[1]);
        assert!(
            lines[1].contains(",9.500000,") && lines[1].contains(",40.000000,39.000000,"),
            "{}",
            lines[1]
        );
        assert!(lines[2].starts_with("good,complete,"), "{}", lines[2]);
        assert!(lines[3].starts_with("lost,missing,/r,\"/d, 1\",0,0,,"), "{}", lines[3]);
        assert!(lines[3].ends_with(",\"no \"\"file\"\"\""), "{}", lines[3]);
        let [bad, good, lost] = ["bad.json", "good.json", "lost"].map(|name| html.find(name).unwrap());
        assert!(bad < good && good < lost, "{html}");
        assert!(html.contains("3 titles, 2 with scores, 1 of them damaged"), "{html}");
        assert!(html.contains("<td class=\"number\">9.500</td>"), "the JOD: {html}");
    }

    #[test]
    fn names_are_no_markup() {
        let [_, html] = files(vec![scored("<b>\"'&{{rows}}?#/é", "vmaf", 90.0, &[])]);
        assert!(html.contains("<a href=\"%3Cb%3E%22%27%26%7B%7Brows%7D%7D%3F%23%2F%C3%A9.json\">"), "{html}");
        assert!(html.contains("&lt;b&gt;&quot;&#39;&amp;&#123;&#123;rows}}?#/é</a>"), "{html}");
    }
}
