// SPDX-License-Identifier: MPL-2.0

//! Results files in the schema of libvmaf's own writers (json, xml, csv).
//!
//! Rows are streamed into a temporary file beside the target, which takes the target's name when the
//! results are complete: a reader never sees half a file, and memory does not grow with the stream.

use std::fs::Permissions;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use engine::model::pool::{Pool, Pooled};
use tempfile::NamedTempFile;

use super::settings::ResultsFormat;

const VERSION: &str = concat!("hipvmaf ", env!("CARGO_PKG_VERSION"));

/// A results file being written.
pub struct Results {
    out: BufWriter<NamedTempFile>,
    path: PathBuf,
    format: ResultsFormat,
    /// Name and pooled values of each column; empty until the first row is due.
    columns: Vec<(String, Pool)>,
    rows: u64,
    started: Instant,
    /// Where the frame rate is filled in at the end.
    fps_at: u64,
}

impl Results {
    /// Creates the temporary file, so that a path that cannot be written is known before the first frame.
    pub fn create(path: &Path, format: ResultsFormat) -> io::Result<Self> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        let file = tempfile::Builder::new()
            .prefix(".hipvmaf-")
            .permissions(Permissions::from_mode(0o666)) // less the umask, like any file a program writes
            .tempfile_in(folder)?;
        Ok(Self {
            out: BufWriter::new(file),
            path: path.to_owned(),
            format,
            columns: vec![],
            rows: 0,
            started: Instant::now(),
            fps_at: 0,
        })
    }

    /// Writes what comes before the first row; does nothing when that is done already.
    pub fn begin(&mut self, columns: &[String], width: usize, height: usize) -> io::Result<()> {
        if !self.columns.is_empty() {
            return Ok(());
        }
        self.columns = columns.iter().map(|name| (name.clone(), Pool::default())).collect();
        self.started = Instant::now();
        let out = &mut self.out;
        match self.format {
            ResultsFormat::Json => {
                write!(out, "{{\n  \"version\": \"{VERSION}\",\n  \"fps\": ")?;
                self.fps_at = out.stream_position()?;
                write!(out, "{:>FPS_WIDTH$},\n  \"frames\": [", 0)
            }
            ResultsFormat::Xml => {
                writeln!(out, "<VMAF version=\"{VERSION}\">")?;
                writeln!(out, "  <params qualityWidth=\"{width}\" qualityHeight=\"{height}\" />")?;
                write!(out, "  <fyi fps=\"")?;
                self.fps_at = out.stream_position()?;
                write!(out, "{:0>FPS_WIDTH$}\" />\n  <frames>\n", 0)
            }
            ResultsFormat::Csv => {
                write!(out, "Frame,")?;
                for (name, _) in &self.columns {
                    write!(out, "{},", csv_field(name))?;
                }
                writeln!(out)
            }
            ResultsFormat::None => Ok(()),
        }
    }

    /// One row: the frame's number and a value for each column.
    pub fn row(&mut self, index: u64, values: &[f64]) -> io::Result<()> {
        let out = &mut self.out;
        match self.format {
            ResultsFormat::Json => {
                let comma = if self.rows > 0 { "," } else { "" };
                write!(out, "{comma}\n    {{\n      \"frameNum\": {index},\n      \"metrics\": {{")?;
                for (i, ((name, _), value)) in self.columns.iter().zip(values).enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(out, "{comma}\n        {}: {}", json_string(name), json_number(*value))?;
                }
                write!(out, "\n      }}\n    }}")?;
            }
            ResultsFormat::Xml => {
                write!(out, "    <frame frameNum=\"{index}\"")?;
                for ((name, _), value) in self.columns.iter().zip(values) {
                    write!(out, " {}=\"{}\"", xml_name(name), number(*value))?;
                }
                writeln!(out, " />")?;
            }
            ResultsFormat::Csv => {
                write!(out, "{index},")?;
                for value in values {
                    write!(out, "{},", number(*value))?;
                }
                writeln!(out)?;
            }
            ResultsFormat::None => {}
        }
        for ((_, pool), value) in self.columns.iter_mut().zip(values) {
            pool.push(*value);
        }
        self.rows += 1;
        Ok(())
    }

    /// Writes the pooled values and those of the whole stream, and gives the file its name. Without a row there is
    /// nothing to keep.
    pub fn finish(mut self, aggregates: &[(&str, f64)]) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let out = &mut self.out;
        match self.format {
            ResultsFormat::Json => {
                write!(out, "\n  ],\n  \"pooled_metrics\": {{")?;
                for (i, (name, pool)) in self.columns.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(out, "{comma}\n    {}: {{", json_string(name))?;
                    for (i, (key, value)) in pooled(pool).enumerate() {
                        let comma = if i > 0 { "," } else { "" };
                        write!(out, "{comma}\n      \"{key}\": {}", json_number(value))?;
                    }
                    write!(out, "\n    }}")?;
                }
                write!(out, "\n  }},\n  \"aggregate_metrics\": {{")?;
                for (i, (name, value)) in aggregates.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(out, "{comma}\n    {}: {}", json_string(name), json_number(*value))?;
                }
                write!(out, "\n  }}\n}}\n")?;
            }
            ResultsFormat::Xml => {
                writeln!(out, "  </frames>\n  <pooled_metrics>")?;
                for (name, pool) in &self.columns {
                    write!(out, "    <metric name=\"{}\"", xml_text(name))?;
                    for (key, value) in pooled(pool) {
                        write!(out, " {key}=\"{}\"", number(value))?;
                    }
                    writeln!(out, " />")?;
                }
                write!(out, "  </pooled_metrics>\n  <aggregate_metrics")?;
                for (name, value) in aggregates {
                    write!(out, " {}=\"{}\"", xml_name(name), number(*value))?;
                }
                writeln!(out, " />\n</VMAF>")?;
            }
            ResultsFormat::Csv | ResultsFormat::None => {}
        }
        if self.fps_at > 0 {
            let fps = format!("{:.2}", self.rows as f64 / self.started.elapsed().as_secs_f64().max(1e-6));
            out.seek(SeekFrom::Start(self.fps_at))?;
            match self.format {
                ResultsFormat::Xml => write!(out, "{fps:0>FPS_WIDTH$}")?,
                _ => write!(out, "{fps:>FPS_WIDTH$}")?,
            }
        }
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|err| err.error)?;
        Ok(())
    }
}

/// Characters kept free for the frame rate, which is known only at the end.
const FPS_WIDTH: usize = 12;

/// Pooled values with the names of libvmaf's schema.
fn pooled(pool: &Pool) -> impl Iterator<Item = (&'static str, f64)> {
    let named =
        |p: Pooled| [("min", p.min), ("max", p.max), ("mean", p.mean), ("harmonic_mean", p.harmonic_mean)];
    pool.pooled().into_iter().flat_map(named)
}

/// libvmaf prints 6 decimals, and 16 when the fraction starts with more than 5 zeros.
fn number(value: f64) -> String {
    let fraction = value.abs().fract();
    if fraction != 0.0 && fraction < 1e-6 { format!("{value:.16}") } else { format!("{value:.6}") }
}

fn json_number(value: f64) -> String {
    if value.is_finite() { number(value) } else { "null".into() }
}

fn json_string(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}

/// Model names become attribute names: characters that XML does not allow there turn into `_`.
fn xml_name(name: &str) -> String {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_alphabetic() || c == '_') { name } else { format!("_{name}") }
}

fn xml_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(format: ResultsFormat, rows: &[[f64; 2]]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let mut results = Results::create(&path, format).unwrap();
        results.begin(&["integer_adm2".into(), "my <\"model\">".into()], 160, 90).unwrap();
        for (i, row) in rows.iter().enumerate() {
            results.row(i as u64, row).unwrap();
            assert!(!path.exists(), "visible before it is complete");
        }
        results.finish(&[("apsnr_y", 34.5)]).unwrap();
        assert!(std::fs::read_dir(folder.path()).unwrap().count() <= 1, "temporary file left behind");
        std::fs::read_to_string(path).ok()
    }

    const ROWS: [[f64; 2]; 2] = [[0.5, 80.25], [1.0, f64::NAN]];

    #[test]
    fn json_parses_with_libvmafs_members() {
        let json: serde_json::Value =
            serde_json::from_str(&write(ResultsFormat::Json, &ROWS).unwrap()).unwrap();
        assert_eq!(json["frames"][1]["frameNum"], 1);
        assert_eq!(json["frames"][0]["metrics"]["my <\"model\">"], 80.25);
        assert!(json["frames"][1]["metrics"]["my <\"model\">"].is_null());
        assert_eq!(json["pooled_metrics"]["integer_adm2"]["mean"], 0.75);
        assert_eq!(json["pooled_metrics"]["integer_adm2"]["harmonic_mean"], 0.714286);
        assert!(json["fps"].as_f64().unwrap() > 0.0);
        assert_eq!(json["aggregate_metrics"]["apsnr_y"], 34.5);
    }

    #[test]
    fn csv_has_a_header_and_a_row_per_frame() {
        let csv = write(ResultsFormat::Csv, &ROWS).unwrap();
        assert_eq!(
            csv,
            "Frame,integer_adm2,\"my <\"\"model\"\">\",\n0,0.500000,80.250000,\n1,1.000000,NaN,\n"
        );
    }

    #[test]
    fn xml_escapes_what_users_name() {
        let xml = write(ResultsFormat::Xml, &ROWS).unwrap();
        assert!(xml.contains("<params qualityWidth=\"160\" qualityHeight=\"90\" />"));
        assert!(
            xml.contains("<frame frameNum=\"0\" integer_adm2=\"0.500000\" my___model__=\"80.250000\" />")
        );
        assert!(xml.contains("<aggregate_metrics apsnr_y=\"34.500000\" />"));
        assert!(xml.contains("<metric name=\"my &lt;&quot;model&quot;>\" min="));
    }

    #[test]
    fn nothing_is_left_of_a_stream_without_frames_or_with_an_error() {
        assert_eq!(write(ResultsFormat::Json, &[]), None);
        let folder = tempfile::tempdir().unwrap();
        drop(Results::create(&folder.path().join("results"), ResultsFormat::Csv).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn numbers_print_as_libvmaf_prints_them() {
        assert_eq!(number(83.856284000421), "83.856284");
        assert_eq!(number(3.4e-7), "0.0000003400000000");
        assert_eq!(number(100.0), "100.000000");
        assert_eq!(number(-1.5), "-1.500000");
    }
}
