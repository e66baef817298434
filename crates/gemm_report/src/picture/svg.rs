//! Elements of SVG as text, and the picture that they are put together to.

use std::fmt::{self, Write};

use super::theme;

/// The width of pictures in their own units. Text of 15 can be read if they are 400 pixels wide.
pub const WIDTH: f64 = 640.0;

/// The width of a picture that is shown at half the width of a page.
pub const NARROW: f64 = 440.0;

/// The space at the left and right edge.
pub const MARGIN: f64 = 16.0;

/// What a file of a picture begins with.
pub const SVG_START: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"";

/// A finished picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// What it shows, in a word: a part of a file's name.
    pub name: String,
    /// What it shows, in a line.
    pub title: String,
    width: f64,
    height: f64,
    body: String,
}

impl Picture {
    /// As a file of its own, with its colours for light and dark.
    pub fn to_svg(&self) -> String {
        format!("{}<style>{}</style>{}</svg>\n", self.head(true), theme::css("svg"), self.body)
    }

    /// As a part of a page that has [`theme::css`] for `.picture`.
    pub fn to_inline(&self) -> String {
        format!("{}{}</svg>\n", self.head(false), self.body)
    }

    fn head(&self, alone: bool) -> String {
        let (width, height) = (number(self.width), number(self.height));
        let start = if alone { SVG_START } else { "<svg class=\"picture\"" };
        let label = escape(&self.title);
        format!("{start} viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">")
    }
}

/// Where a text lies about its point.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// Right of it.
    Start,
    /// Around it.
    Middle,
    /// Left of it.
    End,
}

/// What is drawn, one element after the other.
#[derive(Default)]
pub struct Canvas {
    body: String,
}

impl Canvas {
    /// A text of a class, whose baseline begins, is centred or ends at a point.
    pub fn text(&mut self, [x, y]: [f64; 2], class: &str, anchor: Anchor, text: &str) {
        let class = match anchor {
            Anchor::Start => class.to_owned(),
            Anchor::Middle => format!("{class} mid"),
            Anchor::End => format!("{class} end"),
        };
        self.element("text", &class, &[("x", x), ("y", y)], &escape(text));
    }

    /// A line.
    pub fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        self.path(
            class,
            format_args!("M{} {}L{} {}", number(x1), number(y1), number(x2), number(y2)),
        );
    }

    /// A line through points.
    pub fn polyline(&mut self, class: &str, points: impl IntoIterator<Item = [f64; 2]>) {
        let mut path = String::new();
        for [x, y] in points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            path += &format!("{command}{} {}", number(x), number(y));
        }
        self.path(class, path);
    }

    /// A path of SVG's own commands.
    pub fn path(&mut self, class: &str, commands: impl fmt::Display) {
        let class = attribute(class);
        push(&mut self.body, format_args!("<path{class} d=\"{commands}\"/>"));
    }

    /// A rectangle from its upper left corner, with round corners.
    pub fn rect(&mut self, class: &str, [x, y]: [f64; 2], [width, height]: [f64; 2], round: f64) {
        let attributes = [("x", x), ("y", y), ("width", width), ("height", height), ("rx", round)];
        self.element("rect", class, &attributes, "");
    }

    /// A mark at a point.
    pub fn mark(&mut self, class: &str, mark: Mark, [x, y]: [f64; 2]) {
        let r = mark.radius();
        let at = |x: f64, y: f64| format!("{} {}", number(x), number(y));
        match mark {
            Mark::Dot | Mark::Ring => {
                self.element("circle", class, &[("cx", x), ("cy", y), ("r", r)], "");
            }
            Mark::Square => self.rect(class, [x - r, y - r], [2.0 * r, 2.0 * r], 0.0),
            Mark::Diamond => {
                let [top, right] = [at(x, y - r), at(x + r, y)];
                let [bottom, left] = [at(x, y + r), at(x - r, y)];
                self.path(class, format_args!("M{top}L{right}L{bottom}L{left}Z"));
            }
        }
    }

    /// What a pointer or a screen reader finds out about the elements that `draw` draws.
    pub fn explained(&mut self, text: &str, draw: impl FnOnce(&mut Self)) {
        push(&mut self.body, format_args!("<g><title>{}</title>", escape(text)));
        draw(self);
        self.body += "</g>";
    }

    fn element(&mut self, name: &str, class: &str, attributes: &[(&str, f64)], text: &str) {
        push(&mut self.body, format_args!("<{name}{}", attribute(class)));
        for (name, value) in attributes {
            push(&mut self.body, format_args!(" {name}=\"{}\"", number(*value)));
        }
        match text {
            "" => self.body += "/>",
            text => push(&mut self.body, format_args!(">{text}</{name}>")),
        }
    }
}

/// How a point is marked. Marks differ in shape, so that colours are not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A filled circle.
    Dot,
    /// A circle, which its class leaves empty.
    Ring,
    /// A square.
    Square,
    /// A square on its corner.
    Diamond,
}

impl Mark {
    fn radius(self) -> f64 {
        match self {
            Self::Dot => 5.0,
            Self::Ring => 4.5,
            Self::Square => 4.2,
            Self::Diamond => 5.8,
        }
    }
}

/// An entry of a legend.
pub struct Key {
    /// The class of its line; empty without one.
    pub line: String,
    /// The class of its mark, and its shape.
    pub mark: Option<(String, Mark)>,
    /// What it means.
    pub text: String,
}

impl Key {
    /// From the class of a line, that of a mark with its shape, and a text.
    pub fn new(line: &str, mark: Option<(&str, Mark)>, text: impl Into<String>) -> Self {
        let mark = mark.map(|(class, mark)| (class.to_owned(), mark));
        Self { line: line.to_owned(), mark, text: text.into() }
    }
}

/// A picture in the making: its head is there, and what follows is below.
pub struct Sheet {
    name: String,
    title: String,
    source: String,
    width: f64,
    /// What is drawn.
    pub canvas: Canvas,
    /// How far down there is something already.
    pub bottom: f64,
}

impl Sheet {
    /// A picture with a title, a note that explains it, and the run that it shows.
    pub fn new(name: &str, title: &str, note: &str, source: &str) -> Self {
        Self::with_width(WIDTH, name, title, note, source)
    }

    /// As [`Sheet::new`], of another width.
    pub fn with_width(width: f64, name: &str, title: &str, note: &str, source: &str) -> Self {
        let mut canvas = Canvas::default();
        let mut y = 14.0;
        for line in wrap(title, width - 2.0 * MARGIN, 10.9) {
            y += 21.0;
            canvas.text([MARGIN, y - 2.0], "h", Anchor::Start, &line);
        }
        for line in wrap(note, width - 2.0 * MARGIN, 8.0) {
            y += 20.0;
            canvas.text([MARGIN, y], "n", Anchor::Start, &line);
        }
        let [name, title, source] = [name, title, source].map(str::to_owned);
        Self { name, title, source, width, canvas, bottom: y + 8.0 }
    }

    /// What marks and lines mean.
    pub fn legend(&mut self, keys: &[Key]) {
        const MARK: f64 = 30.0;
        let mut x = MARGIN;
        self.bottom += 20.0;
        for Key { line, mark, text } in keys {
            let width = MARK + text_width(text, 7.9) + 18.0;
            if x > MARGIN && x + width > self.width - MARGIN {
                x = MARGIN;
                self.bottom += 21.0;
            }
            let y = self.bottom - 5.0;
            if !line.is_empty() {
                self.canvas.line(line, [x + 1.0, y], [x + 23.0, y]);
            }
            if let Some((class, mark)) = mark {
                self.canvas.mark(class, *mark, [x + 12.0, y]);
            }
            self.canvas.text([x + MARK, self.bottom], "t", Anchor::Start, text);
            x += width;
        }
        self.bottom += 6.0;
    }

    /// The picture, with its source at the bottom.
    pub fn finish(mut self) -> Picture {
        for line in wrap(&self.source, self.width - 2.0 * MARGIN, 7.3) {
            self.bottom += 19.0;
            self.canvas.text([MARGIN, self.bottom], "s", Anchor::Start, &line);
        }
        let height = self.bottom + 14.0;
        let mut back = Canvas::default();
        back.rect("bg", [0.5, 0.5], [self.width - 1.0, height - 1.0], 8.0);
        let Self { name, title, width, canvas, .. } = self;
        Picture { name, title, width, height, body: back.body + &canvas.body }
    }
}

/// The width of a text at this average width of a character: fonts differ, so it is a generous one.
pub fn text_width(text: &str, each: f64) -> f64 {
    text.chars().count() as f64 * each
}

/// Lines of words that fit into a width.
fn wrap(text: &str, width: f64, each: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // A space that does not break is a part of its word.
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if text_width(line, each) + text_width(word, each) + each <= width => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A coordinate: a tenth of a unit is less than anybody sees.
pub fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // Without a minus in front of zero.
    format!("{}", rounded + 0.0)
}

/// Escapes a text for XML and HTML, also in attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // XML has no other way to say that there was one.
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

fn attribute(class: &str) -> String {
    match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    }
}

fn push(body: &mut String, text: fmt::Arguments<'_>) {
    body.write_fmt(text).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        assert_eq!(escape("a<b & \"c\"\u{1b}"), "a&lt;b &amp; &quot;c&quot;\u{fffd}");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([12.0, 0.04, -0.04, 3.26].map(number), ["12", "0", "0", "3.3"]);
    }

    #[test]
    fn lines_hold_what_fits() {
        assert_eq!(wrap("one two three", 8.0, 1.0), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible", 4.0, 1.0), ["incomprehensible"]);
    }
}
