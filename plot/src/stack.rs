//! Several figures stacked in one file.

/// Stacks figures of [`LineFigure::to_svg`](super::LineFigure::to_svg) and the other `to_svg` from
/// top to bottom in one SVG with the width of the widest. Other texts are left out.
#[must_use]
pub fn stack(figures: &[String]) -> String {
    let mut inner = String::new();
    let (mut width, mut height) = (0, 0);
    for figure in figures {
        let (Some(wide), Some(high)) = (attribute(figure, "width"), attribute(figure, "height"))
        else {
            continue;
        };
        inner.push_str(&figure.replacen("<svg ", &format!("<svg y=\"{height}\" "), 1));
        width = width.max(wide);
        height += high;
    }
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n{inner}</svg>\n"
    )
}

/// A numeric attribute of the first element.
fn attribute(svg: &str, name: &str) -> Option<u32> {
    let (tag, _) = svg.trim_start().strip_prefix("<svg ")?.split_once('>')?;
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    rest.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AxisSpec, LineFigure, Quantity, Series, Shape};

    #[test]
    fn stack__puts_figures_below_each_other() {
        let figure = |title: &str| {
            let points = vec![(0.0, 1.0), (1.0, 2.0)];
            let axes = [("time", Quantity::Seconds), ("rate", Quantity::BitsPerSecond)]
                .map(|(label, quantity)| AxisSpec::linear(label, quantity));
            let series = vec![Series { name: "a".to_owned(), points }];
            LineFigure::new(title, "", axes, Shape::Step, series).to_svg()
        };
        let one = figure("one");
        let high = attribute(&one, "height").expect("a figure");
        let both = stack(&[one, "no figure".to_owned(), figure("two")]);
        let document = roxmltree::Document::parse(&both).expect("XML");
        let root = document.root_element();
        assert_eq!(root.attribute("height"), Some(&*(2 * high).to_string()));
        let places: Vec<_> =
            root.children().filter(roxmltree::Node::is_element).map(|n| n.attribute("y")).collect();
        assert_eq!(places, [Some("0"), Some(&*high.to_string())]);
        assert!(both.contains("one") && both.contains("two"), "{both}");
        assert_eq!(stack(&[]).matches("<svg").count(), 1);
    }
}
