//! Bars as SVG, one per row of a table.

use crate::report::short;
use std::fmt::Write;

/// Bars: a label and a number each.
pub struct Plot<'a> {
    pub title: &'a str,
    pub unit: &'a str,
    pub bars: Vec<&'a (String, f64)>,
    /// The numbers span decades.
    pub is_logarithmic: bool,
}

impl Plot<'_> {
    pub fn svg(&self) -> String {
        let (left, bar, width) = (260.0, 16.0, 420.0);
        let height = 40.0 + self.bars.len() as f64 * (bar + 4.0) + 10.0;
        let scale = |value: f64| {
            if self.is_logarithmic {
                (1.0 + value.max(0.0)).log10()
            } else {
                value
            }
        };
        let most = self
            .bars
            .iter()
            .map(|(_, value)| scale(*value))
            .fold(f64::MIN_POSITIVE, f64::max);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<text x=\"8\" y=\"18\" font-size=\"13\">{}{}</text>\n",
            left + width + 110.0,
            escape(self.title),
            if self.is_logarithmic { " (logarithmic)" } else { "" }
        );
        for (at, (label, value)) in self.bars.iter().enumerate() {
            let y = 32.0 + at as f64 * (bar + 4.0);
            let length = (scale(*value) / most * width).max(1.0);
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{left}\" y=\"{y}\" \
                 width=\"{length:.1}\" height=\"{bar}\" fill=\"#4477aa\"/><text x=\"{}\" y=\"{}\">{} {}</text>",
                left - 6.0,
                y + 12.0,
                escape(label),
                left + length + 6.0,
                y + 12.0,
                short(*value),
                escape(self.unit)
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
