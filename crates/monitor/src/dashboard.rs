// SPDX-License-Identifier: MPL-2.0

//! The dashboard in the terminal.

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

use super::lines::{clock, score};
use super::scale::{self, Scale};
use super::state::{Entry, Shared, State, Status, Stream, wall_clock};

/// Seconds on the chart.
const SPAN: f64 = 120.0;
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::LightRed];

pub struct Dashboard {
    terminal: ratatui::DefaultTerminal,
    address: SocketAddr,
    /// Index of the visible channel.
    shown: usize,
}

impl Dashboard {
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        Ok(Self { terminal: ratatui::try_init()?, address, shown: 0 })
    }

    /// Draws one channel and the number of channels. Returns true if the user wants to quit.
    pub fn show(&mut self, states: &[Shared]) -> io::Result<bool> {
        self.shown = self.shown.checked_rem(states.len()).unwrap_or(0);
        let (address, number) = (self.address, format!("{} of {}", self.shown + 1, states.len()));
        if let Some(state) = states.get(self.shown) {
            let state = state.lock();
            self.terminal.draw(|frame| draw(frame, &state, &number, &address))?;
        }
        self.keys()
    }

    /// Returns true if the user pressed q, Escape or Ctrl-C. Tab selects the next channel.
    fn keys(&mut self) -> io::Result<bool> {
        while event::poll(Duration::ZERO)? {
            if let event::Event::Key(key) = event::read()? {
                let interrupt =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                    KeyCode::Tab => self.shown += 1,
                    _ if interrupt => return Ok(true),
                    _ => {}
                }
            }
        }
        Ok(false)
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn draw(frame: &mut Frame, state: &State, number: &str, address: &SocketAddr) {
    let rows = u16::try_from(state.renditions.len()).unwrap_or(u16::MAX).saturating_add(4);
    let layout = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows),
        Constraint::Min(8),
        Constraint::Length(8),
    ]);
    let [title, table, chart, events] = layout.areas(frame.area());
    let line = format!(
        " {}, channel {number}   {} on {}   http://{address}/   Tab: next, q: quit",
        state.name, state.model, state.backend
    );
    frame.render_widget(Line::from(line).bold(), title);
    frame.render_widget(streams(state), table);
    draw_chart(frame, state, chart);
    let list: Vec<Line> = state.events.iter().map(entry).collect();
    frame.render_widget(Paragraph::new(list).block(Block::bordered().title(" Events ")), events);
}

fn streams(state: &State) -> Table<'_> {
    let header = Row::new([
        "",
        "state",
        scale::title(&state.score_of),
        "p5",
        "lowest",
        "unpaired",
        "skipped",
        "offset",
        "alarms",
        "source",
    ]);
    let rows = std::iter::once(&state.reference).chain(&state.renditions).enumerate();
    let widths =
        [14, 9, 7, 7, 7, 9, 8, 9, 16].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
    Table::new(rows.map(|(i, stream)| row(i, stream)), widths)
        .header(header.style(Style::new().dim()))
        .block(Block::bordered().title(format!(" Streams, {} UTC ", clock(wall_clock()))))
}

fn row(i: usize, stream: &Stream) -> Row<'_> {
    let score = |value: Option<f64>| score(value.unwrap_or(f64::NAN));
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
        stream.status.name().into(),
        score(last.map(|point| point.mean)).into(),
        score(last.map(|point| point.p5)).into(),
        score(last.map(|point| point.min)).into(),
        count(stream.counts.unpaired).into(),
        count(stream.counts.skipped).into(),
        stream.offset.map_or(String::new(), |seconds| format!("{:+.0} ms", seconds * 1e3)).into(),
        raised.into(),
        Line::from(stream.source.as_str()).dim(),
    ])
    .style(style)
}

fn draw_chart(frame: &mut Frame, state: &State, area: ratatui::layout::Rect) {
    let start = wall_clock() - SPAN;
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
    let Scale { low, high, unit } = Scale::of(&state.score_of);
    let labels = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| format!("{}", low + (high - low) * share));
    let y = Axis::default().bounds([low, high]).labels(labels);
    let title = format!(" {}, mean of the window {unit}", scale::title(&state.score_of));
    let block = Block::bordered().title(title);
    frame.render_widget(Chart::new(sets.collect()).block(block).x_axis(x).y_axis(y), area);
}

fn entry(entry: &Entry) -> Line<'_> {
    let colour = match entry.state.as_str() {
        "raised" => Color::Red,
        "cleared" => Color::Green,
        _ => Color::Reset,
    };
    Line::from(vec![
        Span::from(format!("{} UTC  {:<12} ", clock(entry.time), entry.label)),
        Span::from(format!("{} {}  ", entry.kind, entry.state)).fg(colour),
        Span::from(entry.text.as_str()),
    ])
}
