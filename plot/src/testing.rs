//! Parser of figures for tests.

use crate::style::{UNITS, WIDTH, text_width};

/// A parsed figure; parsing panics if it is malformed.
pub(crate) struct Svg(String);

impl Svg {
    pub(crate) fn parse(text: &str) -> Self {
        roxmltree::Document::parse(text).expect("the SVG is well-formed");
        Self(text.to_owned())
    }

    fn document(&self) -> roxmltree::Document<'_> {
        roxmltree::Document::parse(&self.0).expect("it was parsed before")
    }

    pub(crate) fn width(&self) -> f64 {
        number(self.document().root_element(), "width")
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        let document = self.document();
        let texts = document.descendants().filter(|n| n.has_tag_name("text"));
        texts.map(|n| n.text().unwrap_or_default().trim().to_owned()).collect()
    }

    /// The number of elements `tag` with `value` in the attribute `name`.
    pub(crate) fn count(&self, tag: &str, name: &str, value: &str) -> usize {
        let document = self.document();
        let of = document.descendants().filter(|n| tag_name(*n) == tag);
        of.filter(|n| n.attribute(name) == Some(value)).count()
    }

    /// The points of each polyline or polygon drawn in `ink` (`#RRGGBB`).
    pub(crate) fn shapes(&self, ink: &str) -> Vec<Vec<(f64, f64)>> {
        let document = self.document();
        let drawn = document
            .descendants()
            .filter(|n| n.attribute("stroke") == Some(ink) || n.attribute("fill") == Some(ink));
        drawn.filter_map(|n| n.attribute("points")).map(points).collect()
    }

    /// Asserts that all shapes and texts are within the figure.
    pub(crate) fn assert_all_within(&self) {
        let document = self.document();
        let height = number(document.root_element(), "height") * f64::from(UNITS);
        let width = f64::from(WIDTH * UNITS);
        let within = |x: f64, y: f64, what: &str| {
            let on = (0.0..=width).contains(&x) && (0.0..=height).contains(&y);
            assert!(on, "{what} at {x}, {y} is not on {width} x {height}");
        };
        for node in document.descendants().filter(roxmltree::Node::is_element) {
            if let Some(list) = node.attribute("points") {
                for (x, y) in points(list) {
                    within(x, y, tag_name(node));
                }
            }
            if tag_name(node) == "text" && node.attribute("transform").is_none() {
                let text = node.text().unwrap_or_default().trim();
                let size = number(node, "font-size");
                let long = f64::from(text_width(text, 100)) * size / 100.0;
                let (x, y) = (number(node, "x"), number(node, "y"));
                let from = match node.attribute("text-anchor") {
                    Some("end") => x - long,
                    Some("middle") => x - long / 2.0,
                    _ => x,
                };
                within(from, y, text);
                within(from + long, y + size, text);
            }
        }
    }
}

fn tag_name<'a>(node: roxmltree::Node<'_, 'a>) -> &'a str
where
{
    node.tag_name().name()
}

fn number(node: roxmltree::Node<'_, '_>, name: &str) -> f64 {
    let text = node.attribute(name).unwrap_or_else(|| panic!("{node:?} has no {name}"));
    text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}"))
}

fn points(list: &str) -> Vec<(f64, f64)> {
    let pair = |p: &str| p.split_once(',').map(|(x, y)| (coordinate(x), coordinate(y)));
    list.split_whitespace().map(|p| pair(p).expect("x,y")).collect()
}

fn coordinate(text: &str) -> f64 {
    text.parse().expect("a number")
}
