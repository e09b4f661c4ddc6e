//! The style of all figures: sizes, fonts and colours.

use plotters::style::{Color, RGBAColor, RGBColor, ShapeStyle};

/// Drawing units per pixel. The backend rounds positions to whole units, so that with one unit per
/// pixel a gentle slope would be drawn as steps.
pub(crate) const UNITS: i32 = 4;
/// Width of every figure in pixels.
pub(crate) const WIDTH: i32 = 900;

/// Font sizes in pixels.
pub(crate) const TITLE: i32 = 17;
pub(crate) const TEXT: i32 = 13;
pub(crate) const SMALL: i32 = 12;

pub(crate) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(crate) const FAINT: RGBColor = RGBColor(0x5f, 0x5f, 0x5f);
pub(crate) const GRID: RGBColor = RGBColor(0xe3, 0xe3, 0xe3);
pub(crate) const FRAME: RGBColor = RGBColor(0x9a, 0x9a, 0x9a);
/// Colour of faults, such as drops.
pub(crate) const ALARM: RGBColor = RGBColor(0xd5, 0x5e, 0x00);

/// The colour of series `i` of `of`.
///
/// # Source
/// Okabe and Ito, "Color Universal Design" (2008), without yellow, which is hard to see on white.
pub(crate) fn colour(i: usize, of: usize) -> RGBColor {
    if of <= PALETTE.len() { PALETTE[i % PALETTE.len()] } else { shade(i, of) }
}

/// True if `of` series are shaded from dark to light, because they are more than the palette.
pub(crate) fn is_shaded(of: usize) -> bool {
    of > PALETTE.len()
}

/// The style of a line of `width` pixels.
pub(crate) fn stroke(colour: &impl Color, width: u32) -> ShapeStyle {
    colour.stroke_width(width * UNITS.unsigned_abs())
}

/// The fill colour for an outline of `colour`.
pub(crate) fn fill_colour(colour: RGBColor) -> RGBAColor {
    colour.mix(0.28)
}

/// The fill colour of a band around a line of `colour`: eight of them may overlap.
pub(crate) fn band_colour(colour: RGBColor) -> RGBAColor {
    colour.mix(0.16)
}

/// Estimated width of `text` in pixels at a font size of `px`. It is an upper estimate, because the
/// viewer's fonts are unknown.
pub(crate) fn text_width(text: &str, px: i32) -> i32 {
    let chars = i32::try_from(text.chars().count()).unwrap_or(i32::MAX);
    chars.saturating_mul(px).saturating_mul(5) / 8
}

/// Interpolates between the anchors of [`SHADES`] in integers.
fn shade(i: usize, of: usize) -> RGBColor {
    let last = of.max(2) - 1;
    let along = i.min(last) * (SHADES.len() - 1);
    let (from, part) = (along / last, along % last);
    let (a, b) = (SHADES[from], SHADES[(from + 1).min(SHADES.len() - 1)]);
    let mix = |a: u8, b: u8| {
        let mixed = (usize::from(a) * (last - part) + usize::from(b) * part) / last;
        u8::try_from(mixed).unwrap_or(u8::MAX)
    };
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

const PALETTE: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x33, 0x33, 0x33),
];

/// Anchors of matplotlib's viridis, dark to light, without its yellow end.
const SHADES: [RGBColor; 5] = [
    RGBColor(0x44, 0x01, 0x54),
    RGBColor(0x3e, 0x4a, 0x89),
    RGBColor(0x26, 0x82, 0x8e),
    RGBColor(0x35, 0xb7, 0x79),
    RGBColor(0x8f, 0xd7, 0x44),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn colour__is_unique_per_series() {
        for of in [1, 2, 7, 8, 32, 100] {
            let all: BTreeSet<_> =
                (0..of).map(|i| colour(i, of)).map(|c| (c.0, c.1, c.2)).collect();
            assert_eq!(all.len(), of, "{of} series");
        }
    }

    #[test]
    fn colour__shades_from_one_end_to_the_other() {
        let ends = [colour(0, 9), colour(8, 9)];
        assert_eq!(ends.map(|c| c.0), [SHADES[0].0, SHADES[4].0]);
        assert!(!is_shaded(7) && is_shaded(8));
    }

    #[test]
    fn text_width__counts_characters() {
        assert_eq!(text_width("µµ", 8), text_width("ab", 8));
    }
}
