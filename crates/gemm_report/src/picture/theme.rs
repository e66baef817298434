//! The colours and fonts of pictures, light and dark.
//!
//! The hues are Okabe and Ito's, which people who do not see all colours tell apart; on dark paper
//! they are lighter. Nothing is told by its hue alone.

/// A class: what it is, its colour on light paper and on dark.
type Rule = (&'static str, &'static str, [&'static str; 2]);

const PAPER: [&str; 2] = ["#ffffff", "#0d1117"];
const INK: [&str; 2] = ["#1f2328", "#e6edf3"];
const SOFT: [&str; 2] = ["#59636e", "#9da7b3"];
const GRID: [&str; 2] = ["#e1e5ea", "#262c36"];
const BORDER: [&str; 2] = ["#d1d9e0", "#30363d"];
const BLUE: [&str; 2] = ["#0072b2", "#56b4e9"];
const GREEN: [&str; 2] = ["#00835f", "#2cc295"];
const VERMILION: [&str; 2] = ["#c94f00", "#ff8a3d"];
const GREY: [&str; 2] = ["#6e7781", "#8b949e"];
const PURPLE: [&str; 2] = ["#a8477f", "#e5a0c8"];
const YELLOW: [&str; 2] = ["#9a6a00", "#f0c24b"];

/// The property that gets the colour, and the class's name.
const COLOURS: &[Rule] = &[
    ("fill", "bg", PAPER),
    ("stroke", "bg", BORDER),
    ("fill", "h", INK),
    ("fill", "t", INK),
    ("fill", "k", INK),
    ("fill", "n", SOFT),
    ("fill", "s", SOFT),
    ("fill", "a", SOFT),
    ("stroke", "halo", PAPER),
    ("stroke", "g", GRID),
    ("stroke", "x", GREY),
    ("stroke", "ref", INK),
    ("stroke", "roof", GREY),
    ("fill", "f0", BLUE),
    ("fill", "f1", GREEN),
    ("fill", "f2", VERMILION),
    ("fill", "f3", GREY),
    ("fill", "f4", PURPLE),
    ("fill", "f5", YELLOW),
    ("stroke", "l0", BLUE),
    ("stroke", "l1", GREEN),
    ("stroke", "l2", VERMILION),
    ("stroke", "l3", GREY),
    ("stroke", "l4", PURPLE),
    ("stroke", "l5", YELLOW),
    ("fill", "o", PAPER),
];

const SANS: &str = "-apple-system,BlinkMacSystemFont,'Segoe UI','Noto Sans','Liberation Sans',\
                    Helvetica,Arial,sans-serif";
const MONO: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono','DejaVu Sans Mono',\
                    monospace";

/// The rules for pictures inside of `scope`, a selector.
pub fn css(scope: &str) -> String {
    let fixed = [
        ("text", format!("font:15px {SANS}")),
        (".h", "font-size:18px;font-weight:600".to_owned()),
        (".n", "font-size:15px".to_owned()),
        (".s", "font-size:13px".to_owned()),
        (".a", "font-size:14px".to_owned()),
        (".k", format!("font:14px {MONO}")),
        (".halo", "stroke-width:4px;paint-order:stroke;stroke-linejoin:round".to_owned()),
        (".b", "font-weight:600".to_owned()),
        (".mid", "text-anchor:middle".to_owned()),
        (".end", "text-anchor:end".to_owned()),
        ("path", "fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round".to_owned()),
        (".g", "stroke-width:1".to_owned()),
        (".x", "stroke-width:1".to_owned()),
        (".ref", "stroke-width:1.5;stroke-dasharray:5 4;stroke-linecap:butt".to_owned()),
        (".roof", "stroke-width:1.5".to_owned()),
        (".o", "stroke-width:2".to_owned()),
        (".d1", "stroke-dasharray:8 5".to_owned()),
        (".d2", "stroke-dasharray:3 5".to_owned()),
        (".d3", "stroke-dasharray:10 4 2 4".to_owned()),
    ];
    let mut css: String =
        fixed.iter().map(|(class, rule)| format!("{scope} {class}{{{rule}}}")).collect();
    let colours = |column: usize| -> String {
        let rules = COLOURS.iter().map(|(property, class, colours)| {
            format!("{scope} .{class}{{{property}:{}}}", colours[column])
        });
        rules.collect()
    };
    css += &colours(0);
    // Paper is light.
    css += &format!("@media screen and (prefers-color-scheme:dark){{{}}}", colours(1));
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The luminance of the web's guidelines for contrast.
    fn luminance(colour: &str) -> f64 {
        let part = |start: usize| {
            let value = u8::from_str_radix(&colour[start..start + 2], 16).unwrap();
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    /// 4.5 to 1 for text, and as much for marks.
    #[test]
    fn colours_stand_out_from_the_paper() {
        for colours in [INK, SOFT, BLUE, GREEN, VERMILION, GREY, PURPLE, YELLOW] {
            for (colour, paper) in colours.into_iter().zip(PAPER) {
                let [one, other] = [colour, paper].map(luminance);
                let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
                assert!(contrast >= 4.5, "{colour} on {paper}: {contrast:.2}");
            }
        }
    }
}
