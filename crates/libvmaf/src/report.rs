// SPDX-License-Identifier: MPL-2.0

//! Reports in libvmaf's four formats, byte for byte but for the version and the speed. Decimal points do not depend on the
//! locale.

use std::io::Write;

use crate::collector::Column;
use crate::context::{State, VERSION};
use crate::names::alias;

/// Names of the ways to pool, in the order of their numbers from 1.
const METHODS: [&str; 4] = ["min", "max", "mean", "harmonic_mean"];

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Xml = 1,
    Json,
    Csv,
    Sub,
}

impl Format {
    /// The format of a number in the C interface.
    pub fn new(number: u32) -> Option<Self> {
        [Self::Xml, Self::Json, Self::Csv, Self::Sub].into_iter().find(|format| *format as u32 == number)
    }
}

/// C's `%f` of this many digits.
fn fixed(value: f64, digits: usize) -> String {
    match (value.is_nan(), value.is_sign_negative()) {
        (true, true) => "-nan".into(),
        (true, false) => "nan".into(),
        // Infinity is `inf` in Rust as well.
        (false, _) => format!("{value:.digits$}"),
    }
}

/// A score: with six digits, or with sixteen if six would show little of it.
fn number(value: f64) -> String {
    // A conversion to int yields this for numbers beyond its range.
    let whole = if value.abs() < 2147483648.0 { value.abs().trunc() } else { f64::from(i32::MIN) };
    let mut fraction = value.abs() - whole;
    let mut zeros = 0;
    while fraction < 1.0 && fraction != 0.0 {
        fraction *= 10.0;
        zeros += 1;
    }
    fixed(value, if zeros <= 6 { 6 } else { 16 })
}

/// A score in JSON, which has neither infinity nor NaN.
fn json_number(value: f64) -> String {
    if value.is_finite() { number(value) } else { "null".into() }
}

/// A line of a report: an index, and the scores that it has.
struct Row<'a> {
    index: u32,
    scores: Vec<(&'a Column, f64)>,
}

/// The short name of a column, and its pooled scores by the number of the method.
type Pools = (Vec<u8>, Vec<(usize, f64)>);

impl State {
    /// The rows of the indices that subsampling leaves and that have scores.
    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let columns = self.collector.columns();
        let end = columns.iter().map(Column::capacity).max().unwrap_or(0) as u32;
        let row = move |index| {
            let score = |column: &'_ Column| column.score(index);
            let scores = columns.iter().filter_map(|column| Some((column, score(column)?))).collect();
            Row { index, scores }
        };
        (0..end)
            .step_by(self.reader.subsample() as usize)
            .map(row)
            .filter(|row: &Row<'_>| !row.scores.is_empty())
    }

    /// The pooled scores of each column that has one for each picture, by the number of the method.
    fn pools(&mut self) -> Vec<Pools> {
        let names: Vec<_> = self.collector.columns().iter().map(|column| column.name.clone()).collect();
        let last = self.reader.pairs().wrapping_sub(1);
        let pool = |name: Vec<u8>| {
            let scores =
                (0..METHODS.len()).filter_map(|i| Some((i, self.pooled(&name, i as u32 + 1, 0, last).ok()?)));
            let scores = scores.collect();
            (alias(&name), scores)
        };
        names.into_iter().map(pool).collect()
    }

    /// Writes a report.
    pub fn report(&mut self, format: Format) -> Vec<u8> {
        self.reader.drain(&mut self.collector);
        let mut out = vec![];
        let written = match format {
            Format::Xml => self.xml(&mut out),
            Format::Json => self.json(&mut out),
            Format::Csv => self.csv(&mut out),
            Format::Sub => self.sub(&mut out),
        };
        // Memory takes everything.
        debug_assert!(written.is_ok());
        out
    }

    fn fps(&self) -> f64 {
        f64::from(self.reader.pairs()) / self.collector.seconds()
    }

    fn xml(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let (width, height) = self.reader.format().map_or((0, 0), |format| (format.width, format.height));
        writeln!(out, "<VMAF version=\"{VERSION}\">")?;
        writeln!(out, "  <params qualityWidth=\"{}\" qualityHeight=\"{}\" />", width as i32, height as i32)?;
        writeln!(out, "  <fyi fps=\"{}\" />", fixed(self.fps(), 2))?;
        writeln!(out, "  <frames>")?;
        for Row { index, scores } in self.rows() {
            write!(out, "    <frame frameNum=\"{index}\" ")?;
            for (column, score) in scores {
                out.extend(alias(&column.name));
                write!(out, "=\"{}\" ", number(score))?;
            }
            writeln!(out, "/>")?;
        }
        writeln!(out, "  </frames>")?;
        writeln!(out, "  <pooled_metrics>")?;
        for (name, scores) in self.pools() {
            write!(out, "    <metric name=\"")?;
            out.extend(name);
            write!(out, "\" ")?;
            for (method, score) in scores {
                write!(out, "{}=\"{}\" ", METHODS[method], number(score))?;
            }
            writeln!(out, "/>")?;
        }
        writeln!(out, "  </pooled_metrics>")?;
        write!(out, "  <aggregate_metrics ")?;
        for (name, value) in self.collector.aggregates() {
            write!(out, "{name}=\"{}\" ", number(*value))?;
        }
        writeln!(out, "/>")?;
        writeln!(out, "</VMAF>")
    }

    fn json(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let fps = self.fps();
        let fps = if fps.is_finite() { fixed(fps, 2) } else { "null".into() };
        writeln!(out, "{{\n  \"version\": \"{VERSION}\",\n  \"fps\": {fps},")?;
        write!(out, "  \"frames\": [")?;
        for Row { index, scores } in self.rows() {
            write!(out, "{}", if index > 0 { ",\n" } else { "\n" })?;
            write!(out, "    {{\n      \"frameNum\": {index},\n      \"metrics\": {{\n")?;
            let count = scores.len();
            for (i, (column, score)) in scores.into_iter().enumerate() {
                write!(out, "        \"")?;
                out.extend(alias(&column.name));
                let comma = if i + 1 < count { "," } else { "" };
                // libvmaf goes on in the same line after `null`.
                let end = if score.is_finite() { "\n" } else { "" };
                write!(out, "\": {}{comma}{end}", json_number(score))?;
            }
            write!(out, "      }}\n    }}")?;
        }
        write!(out, "\n  ],\n  \"pooled_metrics\": {{")?;
        for (i, (name, scores)) in self.pools().into_iter().enumerate() {
            write!(out, "{}    \"", if i > 0 { ",\n" } else { "\n" })?;
            out.extend(name);
            write!(out, "\": {{")?;
            for (method, score) in scores {
                write!(out, "{}", if method > 0 { ",\n" } else { "\n" })?;
                write!(out, "      \"{}\": {}", METHODS[method], json_number(score))?;
            }
            write!(out, "\n    }}")?;
        }
        write!(out, "\n  }},\n  \"aggregate_metrics\": {{")?;
        for (i, (name, value)) in self.collector.aggregates().iter().enumerate() {
            write!(out, "{}\n    \"{name}\": {}", if i > 0 { "," } else { "" }, json_number(*value))?;
        }
        writeln!(out, "\n  }}\n}}")
    }

    fn csv(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        write!(out, "Frame,")?;
        for column in self.collector.columns() {
            out.extend(alias(&column.name));
            write!(out, ",")?;
        }
        writeln!(out)?;
        for Row { index, scores } in self.rows() {
            write!(out, "{index},")?;
            for (_, score) in scores {
                write!(out, "{},", number(score))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn sub(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for Row { index, scores } in self.rows() {
            write!(out, "{{{index}}}{{{}}}frame: {index}|", index + 1)?;
            for (column, score) in scores {
                out.extend(alias(&column.name));
                write!(out, ": {}|", number(score))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_have_more_digits() {
        for (value, text) in [
            (0.0, "0.000000"),
            (100.0, "100.000000"),
            (0.000001, "0.000001"),
            (0.0000009, "0.0000009000000000"),
            (-5.0000001, "-5.0000001000000003"),
            (0.0078125, "0.007812"),
            (3e9, "3000000000.000000"),
            (f64::NAN, "nan"),
            (-f64::NAN, "-nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(json_number(f64::NAN), "null");
    }
}
