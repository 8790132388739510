// SPDX-License-Identifier: MPL-2.0

//! What is shown in the terminal.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Row, Table};

use super::state::{Entry, State, Status, Stream};

/// Seconds on the chart.
const SPAN: f64 = 120.0;
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::LightRed];

pub enum Dashboard {
    /// The last window printed of each rendition, and the number of events printed.
    Lines {
        windows: Vec<f64>,
        events: u64,
    },
    Screen {
        terminal: ratatui::DefaultTerminal,
        address: SocketAddr,
    },
}

impl Dashboard {
    pub fn new(plain: bool, address: SocketAddr) -> io::Result<Self> {
        if plain {
            println!("http://{address}/ shows the scores, http://{address}/metrics is for Prometheus");
            return Ok(Self::Lines { windows: vec![], events: 0 });
        }
        Ok(Self::Screen { terminal: ratatui::try_init()?, address })
    }

    /// Shows how things are. Whether the user wants to leave.
    pub fn show(&mut self, state: &mut State) -> io::Result<bool> {
        match self {
            Self::Lines { windows, events } => {
                lines(state, windows, events);
                Ok(false)
            }
            Self::Screen { terminal, address } => {
                terminal.draw(|frame| draw(frame, state, address))?;
                leave()
            }
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        if let Self::Screen { .. } = self {
            ratatui::restore();
        }
    }
}

/// Whether the user has pressed q, escape or Ctrl-C.
fn leave() -> io::Result<bool> {
    while event::poll(Duration::ZERO)? {
        if let event::Event::Key(key) = event::read()? {
            let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Prints what is new.
fn lines(state: &State, windows: &mut Vec<f64>, events: &mut u64) {
    let new = usize::try_from(state.event_count - *events).unwrap_or(usize::MAX);
    for entry in state.events.iter().take(new).rev() {
        println!("{:<10} {} {} {}", entry.label, entry.kind, entry.state, entry.text);
    }
    *events = state.event_count;
    windows.resize(state.renditions.len(), f64::NEG_INFINITY);
    for (stream, printed) in state.renditions.iter().zip(windows) {
        for point in stream.history.iter().filter(|point| point.time > *printed) {
            let counts = stream.counts;
            println!(
                "{:<10} {:>8.1} s  VMAF {:6.2}  lowest {:6.2}  scored {}  unpaired {}  skipped {}",
                stream.label,
                point.time,
                point.mean,
                point.min,
                counts.scored,
                counts.unpaired,
                counts.skipped
            );
        }
        *printed = stream.last.map_or(*printed, |point| point.time);
    }
}

fn draw(frame: &mut Frame, state: &State, address: &SocketAddr) {
    let rows = u16::try_from(state.renditions.len()).unwrap_or(u16::MAX).saturating_add(4);
    let layout = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows),
        Constraint::Min(8),
        Constraint::Length(8),
    ]);
    let [title, table, chart, events] = layout.areas(frame.area());
    let line =
        format!(" hipvmaf monitor   {} on {}   http://{address}/   q: quit", state.model, state.backend);
    frame.render_widget(Line::from(line).bold(), title);
    frame.render_widget(streams(state), table);
    draw_chart(frame, state, chart);
    let list: Vec<Line> = state.events.iter().map(entry).collect();
    frame.render_widget(Paragraph::new(list).block(Block::bordered().title(" Events ")), events);
}

fn streams(state: &State) -> Table<'_> {
    let header =
        Row::new(["", "state", "VMAF", "p5", "lowest", "unpaired", "skipped", "offset", "alarms", "source"]);
    let rows = std::iter::once(&state.reference).chain(&state.renditions).enumerate();
    let widths =
        [14, 9, 7, 7, 7, 9, 8, 9, 16].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
    Table::new(rows.map(|(i, stream)| row(i, stream)), widths)
        .header(header.style(Style::new().dim()))
        .block(Block::bordered().title(format!(" Streams, {} ", clock(state.now))))
}

fn row(i: usize, stream: &Stream) -> Row<'_> {
    let score =
        |value: Option<f64>| value.filter(|v| v.is_finite()).map_or("-".into(), |v| format!("{v:.2}"));
    let last = stream.last.as_ref();
    let count = |count: u64| if i == 0 { String::new() } else { count.to_string() };
    let raised = stream.raised().join(" ");
    let style = if stream.alarmed() || stream.status == Status::Down {
        Style::new().red().bold()
    } else {
        Style::new()
    };
    let name = match i.checked_sub(1) {
        Some(i) => Span::from(&stream.label).fg(COLOURS[i % COLOURS.len()]),
        None => Span::from(&stream.label),
    };
    Row::new([
        Line::from(name),
        match stream.status {
            Status::Starting => "starting".into(),
            Status::Running => "running".into(),
            Status::Down => "down".into(),
        },
        score(last.map(|point| point.mean)).into(),
        score(last.map(|point| point.p5)).into(),
        score(last.map(|point| point.min)).into(),
        count(stream.counts.unpaired).into(),
        count(stream.counts.skipped).into(),
        stream.offset.map_or(String::new(), |ms| format!("{ms:+.0} ms")).into(),
        raised.into(),
        Line::from(stream.source.as_str()).dim(),
    ])
    .style(style)
}

fn draw_chart(frame: &mut Frame, state: &State, area: ratatui::layout::Rect) {
    let start = (state.now - SPAN).max(0.0);
    let points = |stream: &Stream| -> Vec<(f64, f64)> {
        stream.history.iter().filter(|p| p.mean.is_finite()).map(|p| (p.time, p.mean)).collect()
    };
    let points: Vec<_> = state.renditions.iter().map(points).collect();
    let sets = state.renditions.iter().zip(&points).enumerate().map(|(i, (stream, points))| {
        Dataset::default()
            .name(stream.label.as_str())
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(COLOURS[i % COLOURS.len()])
            .data(points)
    });
    let end = start + SPAN;
    let x = Axis::default().bounds([start, end]).labels([clock(start), clock(end)]);
    let y = Axis::default().bounds([0.0, 100.0]).labels(["0", "25", "50", "75", "100"]);
    let block = Block::bordered().title(" VMAF, mean of the window ");
    frame.render_widget(Chart::new(sets.collect()).block(block).x_axis(x).y_axis(y), area);
}

fn entry(entry: &Entry) -> Line<'_> {
    let colour = match entry.state {
        "raised" => Color::Red,
        "cleared" => Color::Green,
        _ => Color::Reset,
    };
    let time = entry.time.rem_euclid(86_400.0);
    Line::from(vec![
        Span::from(format!("{} UTC  {:<12} ", clock(time), entry.label)),
        Span::from(format!("{} {}  ", entry.kind, entry.state)).fg(colour),
        Span::from(entry.text.as_str()),
    ])
}

fn clock(seconds: f64) -> String {
    let s = seconds as u64;
    format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}
