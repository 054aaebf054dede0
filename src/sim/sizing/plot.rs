//! A line chart as SVG.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 290.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 45.0;
const COLOURS: [&str; 8] =
    ["#c0392b", "#1f77b4", "#2ca02c", "#e08214", "#7b3294", "#555555", "#17a2b8", "#b8860b"];

/// An axis from one number to another, in powers of ten if `log`.
pub struct Axis {
    pub from: f64,
    pub to: f64,
    pub log: bool,
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    fn part(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        ((scale(value) - scale(self.from)) / (scale(self.to) - scale(self.from))).clamp(0.0, 1.0)
    }
}

/// Every other line is dashed, so that one below it can be seen.
fn dashes(number: usize) -> &'static str {
    if number.is_multiple_of(2) { "none" } else { "7 5" }
}

/// Lines over the number of clients.
pub fn chart(title: &str, across: &Axis, up: &Axis, lines: &[(&str, Vec<(f64, f64)>)]) -> String {
    let x = |value: f64| LEFT + across.part(value) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - up.part(value) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    let mut text = |x: f64, y: f64, anchor: &str, colour: &str, text: &str| {
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        );
    };
    text(LEFT, 20.0, "start", "#000000", title);
    for (value, label) in &across.ticks {
        text(x(*value), HEIGHT - BOTTOM + 18.0, "middle", "#333333", label);
    }
    text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0, "middle", "#333333", "clients");
    for (value, label) in &up.ticks {
        text(LEFT - 8.0, y(*value) + 4.0, "end", "#333333", label);
    }
    for (number, (name, _)) in lines.iter().enumerate() {
        let at = TOP + 14.0 + 20.0 * number as f64;
        text(WIDTH - RIGHT + 40.0, at, "start", COLOURS[number % COLOURS.len()], name);
    }
    for (value, _) in &up.ticks {
        let (at, end) = (y(*value), WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>"
        );
    }
    for (number, (_, points)) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<String> =
            points.iter().map(|(across, up)| format!("{:.1},{:.1}", x(*across), y(*up))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{}\"/>",
            path.join(" "),
            dashes(number),
        );
        for (across, up) in points {
            let (x, y) = (x(*across), y(*up));
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let at = TOP + 10.0 + 20.0 * number as f64;
        let (from, to) = (WIDTH - RIGHT + 12.0, WIDTH - RIGHT + 34.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{from}\" y1=\"{at}\" x2=\"{to}\" y2=\"{at}\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{}\"/>",
            dashes(number),
        );
    }
    svg.push_str("</svg>\n");
    svg
}
