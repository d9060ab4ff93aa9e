//! Curves as SVG: lines over a logarithmic axis.

use std::fmt::Write as _;

use gitcd_bench::table::number;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Space for labels: left, right, top, bottom.
const MARGINS: [f64; 4] = [70.0, 110.0, 36.0, 48.0];
/// Parts of the vertical axis.
const PARTS: u32 = 4;
/// Readable on a light and on a dark page.
const COLORS: [&str; 4] = ["#2f81f7", "#d1812b", "#3fa66a", "#a371c7"];
const TEXT: &str = "#7d8590";

/// Lines with common points on the horizontal axis.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// What the axes count.
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// Ascending, and above 0.
    pub(crate) points: Vec<f64>,
    /// Names of the lines, each with a value for each point.
    pub(crate) lines: Vec<(&'a str, Vec<f64>)>,
}

impl Chart<'_> {
    /// Renders the chart.
    pub(crate) fn svg(&self) -> String {
        let [left, right, top, bottom] = MARGINS;
        let most = self.lines.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
        let step = round_up(most / f64::from(PARTS));
        let (low, high) = (first(&self.points).ln(), last(&self.points).ln());
        let width = if high > low { high - low } else { 1.0 };
        let across = |point: f64| left + (point.ln() - low) / width * (WIDTH - left - right);
        let up = |value: f64| HEIGHT - bottom - value / (step * f64::from(PARTS)) * (HEIGHT - top - bottom);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" \
             role=\"img\">\n<title>{title}</title>\n<text x=\"{left}\" y=\"20\" font-size=\"14\" fill=\"{TEXT}\">{title}</text>\n",
            title = escaped(self.title)
        );
        let mut add = |line: std::fmt::Arguments<'_>| writeln!(svg, "{line}").expect("writing to a string cannot fail");
        for part in 0..=PARTS {
            let (value, end) = (step * f64::from(part), WIDTH - right);
            let y = up(value);
            add(format_args!(
                "<line x1=\"{left}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{TEXT}\" stroke-opacity=\"0.3\"/>"
            ));
            let (x, y) = (left - 8.0, y + 4.0);
            add(format_args!(
                "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"{TEXT}\">{}</text>",
                short(value)
            ));
        }
        for point in &self.points {
            let (x, y) = (across(*point), HEIGHT - bottom + 18.0);
            add(format_args!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{TEXT}\">{}</text>",
                short(*point)
            ));
        }
        let (middle, y) = (f64::midpoint(left, WIDTH - right), HEIGHT - 10.0);
        add(format_args!(
            "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\" fill=\"{TEXT}\">{}</text>",
            escaped(self.x)
        ));
        let y = f64::midpoint(top, HEIGHT - bottom);
        add(format_args!(
            "<text x=\"14\" y=\"{y}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {y})\" fill=\"{TEXT}\">{}</text>",
            escaped(self.y)
        ));
        for ((name, values), color) in self.lines.iter().zip(COLORS.iter().cycle()) {
            let places: Vec<(f64, f64)> =
                self.points.iter().zip(values).map(|(point, value)| (across(*point), up(*value))).collect();
            let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            add(format_args!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
                line.join(" ")
            ));
            for (x, y) in &places {
                add(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>"));
            }
            if let Some((x, y)) = places.last() {
                let (x, y) = (x + 8.0, y + 4.0);
                add(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{color}\">{}</text>", escaped(name)));
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn first(points: &[f64]) -> f64 {
    points.first().copied().unwrap_or(1.0)
}

fn last(points: &[f64]) -> f64 {
    points.last().copied().unwrap_or(1.0)
}

/// Returns the least of 1, 2, 2.5, 5 times a power of ten that is not below `value`.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= value * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 && value % 1e5 == 0.0 => format!("{}M", value / 1e6),
        value if value >= 1e3 && value % 100.0 == 0.0 => format!("{}k", value / 1e3),
        value if value.fract() == 0.0 => format!("{value}"),
        value => number(value),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_a_line_with_every_point_and_round_numbers_on_its_axes() {
        let chart = Chart {
            title: "puts & keys",
            x: "keys",
            y: "puts/s",
            points: vec![10_000.0, 100_000.0, 1_000_000.0],
            lines: vec![("gitcd", vec![14_000.0, 13_000.0, 12_000.0]), ("etcd", vec![9_000.0, 8_500.0, 0.0])],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<circle").count(), 6, "{svg}");
        assert!(svg.contains(">puts &amp; keys</title>") && svg.contains(">1M</text>"), "{svg}");
        // The axis ends above the highest value.
        assert!(svg.contains(">20k</text>") && svg.contains(">5k</text>"), "{svg}");
        // The first point is at the left end, and 0 at the bottom.
        assert!(svg.contains("points=\"70.0,") && svg.contains("530.0,272.0\""), "{svg}");
    }

    #[test]
    fn numbers_of_an_axis_are_short_and_round() {
        assert_eq!([0.0, 3.1, 20.0, 0.11].map(|value| number(round_up(value))), ["1.00", "5.00", "20.0", "0.20"]);
        assert_eq!([0.0, 0.25, 500.0, 2_500.0, 1e6].map(short), ["0", "0.25", "500", "2.5k", "1M"]);
    }
}
