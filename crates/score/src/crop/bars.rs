// SPDX-License-Identifier: MPL-2.0

//! Detection of black bars.
//!
//! A single frame is not sufficient: a night scene is dark to its borders, and a fade begins black. So frames from
//! the entire video are examined, and those without any bright area are ignored. In a video without bars, the dark
//! border differs from scene to scene; a bar ends at the same line in many scenes. A bar must be flat and black, and
//! its edge must be that of a good part of the frames. Logos and subtitles in a bar count as picture. In doubt there
//! is no bar: keeping black only makes scores slightly less precise, but cropped picture is not scored at all.

use super::super::preprocessing::Margins;

/// Luma above black by more than this counts as picture, in 8-bit steps.
const LIT: u8 = 16;
/// Coding noise in black is below this.
const BLACK: u8 = 8;
/// A frame is usable if this share of its samples is at least this bright.
const BRIGHT: (usize, u8) = (20, 48);
/// A line is picture if this share of its samples is lit; fewer are a speck.
const SPECK: usize = 100;
/// Lines next to the picture in which a bar may have coding noise.
const EDGE: usize = 8;
/// Share of the samples of a bar that may be brighter than black.
const FLAT: usize = 500;
/// Tolerance for the end of a bar, in lines.
const SAME: u32 = 2;
/// A bar must have the same end in one of this many frames.
const AGREE: usize = 5;
/// It must have the same end in this many frames, if there are as many.
const ENOUGH: usize = 3;

/// Dark borders of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Borders {
    /// Position of the picture.
    margins: Margins,
    /// Borders that are as flat and black as bars; 0 for others.
    flat: Margins,
}

/// Finds the dark borders of a frame, or returns `None` if it is too dark.
pub fn of_frame(
    samples: &[u8],
    stride: usize,
    (width, height): (usize, usize),
    black: u8,
) -> Option<Borders> {
    let rows: Vec<&[u8]> =
        samples.chunks(stride.max(1)).filter_map(|row| row.get(..width)).take(height).collect();
    let count =
        |level: u8, row: &[u8]| row.iter().filter(|sample| sample.saturating_sub(black) > level).count();
    let bright: usize = rows.iter().map(|row| count(BRIGHT.1, row)).sum();
    if rows.len() < height || bright * BRIGHT.0 < width * height || bright == 0 {
        return None;
    }
    let mut columns = vec![0; width];
    for row in &rows {
        for (column, sample) in columns.iter_mut().zip(*row) {
            *column += usize::from(sample.saturating_sub(black) > LIT);
        }
    }
    let is_picture = |lit: usize, length: usize| lit > 1 && lit * SPECK > length;
    let row = |y: &usize| is_picture(count(LIT, rows[*y]), width);
    let column = |x: &usize| is_picture(columns[*x], height);
    // A frame with only a few bright specks has no picture lines.
    let (top, last_row) = ((0..height).find(row)?, (0..height).rfind(row)?);
    let (left, last_column) = ((0..width).find(column)?, (0..width).rfind(column)?);
    let (bottom, right) = (height - 1 - last_row, width - 1 - last_column);

    let flat = |x: std::ops::Range<usize>, y: std::ops::Range<usize>| {
        let area = x.len() * y.len();
        rows[y].iter().map(|row| count(BLACK, &row[x.clone()])).sum::<usize>() * FLAT <= area
    };
    let bar = |length: usize, flat: bool| if flat { length as u32 } else { 0 };
    let outer = |bar: usize| bar.saturating_sub(EDGE);
    let flat = Margins {
        left: bar(left, flat(0..outer(left), 0..height)),
        right: bar(right, flat(width - outer(right)..width, 0..height)),
        top: bar(top, flat(0..width, 0..outer(top))),
        bottom: bar(bottom, flat(0..width, height - outer(bottom)..height)),
    };
    let [left, right, top, bottom] = [left, right, top, bottom].map(|length| length as u32);
    Some(Borders { margins: Margins { left, right, top, bottom }, flat })
}

/// Returns the bars of a video from the dark borders of its frames.
pub fn of_film(frames: &[Borders]) -> Option<Margins> {
    let side = |side: fn(&Margins) -> u32| {
        let least = frames.iter().map(|frame| side(&frame.margins)).min()?;
        let flat: Vec<_> = frames.iter().map(|frame| side(&frame.flat)).filter(|end| *end > 0).collect();
        let ends_at = |end: u32| flat.iter().filter(|other| (end..=end + SAME).contains(*other)).count();
        let agree = flat.iter().map(|end| ends_at(*end)).max().unwrap_or(0);
        let believed = agree * AGREE >= frames.len() && agree >= ENOUGH.min(frames.len());
        Some(if believed { least } else { 0 })
    };
    Some(Margins {
        left: side(|of| of.left)?,
        right: side(|of| of.right)?,
        top: side(|of| of.top)?,
        bottom: side(|of| of.bottom)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: (usize, usize) = (160, 90);

    fn frame(sample: impl Fn(usize, usize) -> u8) -> Option<Borders> {
        let samples: Vec<u8> =
            (0..SIZE.1).flat_map(|y| (0..SIZE.0).map(move |x| (x, y))).map(|(x, y)| sample(x, y)).collect();
        let bars = of_frame(&samples, SIZE.0, SIZE, 0);
        let brighter: Vec<_> = samples.iter().map(|sample| sample.saturating_add(16)).collect();
        assert_eq!(of_frame(&brighter, SIZE.0, SIZE, 16), bars);
        bars
    }

    /// Returns the borders of a picture between bars, with `picture` for the samples in the bars.
    fn letterbox(bar: usize, picture: impl Fn(usize, usize) -> u8) -> Option<Borders> {
        frame(|x, y| if y < bar || y >= SIZE.1 - bar { ((x * 7 + y) % 4) as u8 } else { picture(x, y) })
    }

    fn texture(x: usize, y: usize) -> u8 {
        (60 + (x * 13 + y * 29) % 120) as u8
    }

    fn margins(left: u32, right: u32, top: u32, bottom: u32) -> Margins {
        Margins { left, right, top, bottom }
    }

    /// Borders that are bars.
    fn flat(margins: Margins) -> Borders {
        Borders { margins, flat: margins }
    }

    #[test]
    fn bars_are_found_on_all_sides() {
        assert_eq!(frame(texture), Some(flat(margins(0, 0, 0, 0))));
        assert_eq!(letterbox(12, texture), Some(flat(margins(0, 0, 12, 12))));
        let pillars = frame(|x, y| if (20..139).contains(&x) { texture(x, y) } else { 0 });
        assert_eq!(pillars, Some(flat(margins(20, 21, 0, 0))));
    }

    #[test]
    fn frames_that_are_too_dark_say_nothing() {
        assert_eq!(frame(|_, _| 0), None);
        assert_eq!(letterbox(12, |x, y| texture(x, y) / 8), None);
        assert_eq!(frame(|x, y| if x == 80 && y == 40 { 255 } else { 0 }), None);
        assert_eq!(of_film(&[]), None);
    }

    #[test]
    fn what_shines_in_a_bar_is_picture_and_a_speck_is_not() {
        let with = |shines: fn(usize, usize) -> bool| {
            frame(|x, y| match () {
                () if shines(x, y) => 200,
                () if (12..78).contains(&y) => texture(x, y),
                () => 0,
            })
        };
        let logo = with(|x, y| (140..150).contains(&x) && (3..8).contains(&y));
        assert_eq!(logo, Some(flat(margins(0, 0, 3, 12))));
        assert_eq!(with(|x, y| x == 70 && y == 9), Some(flat(margins(0, 0, 12, 12))));
    }

    #[test]
    fn a_dark_picture_is_no_bar() {
        // A lamp at night: its surroundings are dark, but neither flat nor black.
        let lamp = frame(|x, y| match () {
            () if (40..90).contains(&x) && (30..60).contains(&y) => 220,
            () => (4 + (x * 5 + y * 3) % 9) as u8,
        });
        assert_eq!(of_film(&vec![lamp.unwrap(); 20]), Some(margins(0, 0, 0, 0)));
        // Lights on black at different places: no two frames have the same border.
        let lights: Vec<_> =
            (0..20)
                .filter_map(|i| {
                    let (left, top) = (5 + i * 4, 2 + i * 2);
                    frame(|x, y| {
                        if (left..left + 50).contains(&x) && (top..top + 40).contains(&y) { 220 } else { 0 }
                    })
                })
                .collect();
        assert_eq!((lights.len(), of_film(&lights)), (20, Some(margins(0, 0, 0, 0))));
    }

    #[test]
    fn the_smallest_bars_count_that_frames_agree_on() {
        let [bars, night, full] =
            [margins(0, 0, 12, 12), margins(9, 30, 25, 12), margins(0, 0, 0, 0)].map(flat);
        assert_eq!(of_film(&[bars]), Some(bars.margins));
        assert_eq!(of_film(&[night, bars, bars, night, bars, night]), Some(bars.margins));
        // Coding noise in the bars of some frames.
        let coded = Borders { flat: full.margins, ..bars };
        assert_eq!(of_film(&[bars, coded, bars, coded, bars]), Some(bars.margins));
        // A single scene that fills the frame excludes bars.
        assert_eq!(of_film(&[bars, bars, bars, full, bars]), Some(full.margins));
        let titles = flat(margins(0, 0, 12, 4));
        assert_eq!(of_film(&[bars, titles, bars, bars]), Some(titles.margins));
    }
}
