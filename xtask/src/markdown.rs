//! Links and headings of Markdown.

use std::collections::HashMap;
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A link or an image.
pub struct Link {
    /// Where it stands.
    pub range: Range<usize>,
    /// Where its text stands; empty for one that is written as HTML.
    pub text: Range<usize>,
    /// What it points to.
    pub target: String,
}

fn parser(markdown: &str) -> Parser<'_> {
    Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH)
}

/// The links and images of a text, those in HTML included, in their order.
pub fn links(markdown: &str) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    for (event, range) in parser(markdown).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                open.push(links.len());
                let text = range.start..range.start;
                links.push(Link { range, text, target: dest_url.into_string() });
                continue;
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                open.pop();
                continue;
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                links.extend(html_targets(&html).map(|target| Link {
                    range: range.clone(),
                    text: range.start..range.start,
                    target: target.into(),
                }));
            }
            _ => {}
        }
        for &link in &open {
            let text = &mut links[link].text;
            if text.start == text.end {
                text.start = range.start;
            }
            text.end = text.end.max(range.end);
        }
    }
    links
}

/// What the attributes of HTML point to.
pub fn html_targets(html: &str) -> impl Iterator<Item = &str> {
    ["href=\"", "src=\"", "srcset=\""].into_iter().flat_map(move |attribute| {
        html.match_indices(attribute)
            .filter(|(at, _)| html[..*at].ends_with([' ', '\n']))
            .filter_map(move |(at, _)| html[at + attribute.len()..].split('"').next())
    })
}

/// The text, with each link to which `replace` gives a text replaced by that.
pub fn replace_links(markdown: &str, replace: impl Fn(&str, &Link) -> Option<String>) -> String {
    let mut replaced = String::new();
    let mut at = 0;
    for link in links(markdown) {
        // A link in a link's text goes with that.
        if link.range.start < at {
            continue;
        }
        if let Some(text) = replace(&markdown[link.text.clone()], &link) {
            replaced += &markdown[at..link.range.start];
            replaced += &text;
            at = link.range.end;
        }
    }
    replaced + &markdown[at..]
}

/// The anchors of the headings, as GitHub and mdBook make them.
pub fn anchors(markdown: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut count: HashMap<String, usize> = HashMap::new();
    let mut heading: Option<String> = None;
    for event in parser(markdown) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    *heading += &text;
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor: String = heading
                    .take()
                    .unwrap_or_default()
                    .to_lowercase()
                    .chars()
                    .filter_map(|c| match c {
                        ' ' => Some('-'),
                        c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c),
                        _ => None,
                    })
                    .collect();
                let seen = count.entry(anchor.clone()).or_default();
                anchors.push(if *seen == 0 { anchor } else { format!("{anchor}-{seen}") });
                *seen += 1;
            }
            _ => {}
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A *b* `c_d`, e\n\n[**x** `y`](z.md#e) ![p](q.svg)\n\n<img src=\"r.svg\">\n\n\
        ```text\n[no](link)\n```\n\n# A b c_d e\n";

    #[test]
    fn links_of_all_kinds_are_found() {
        let links = links(TEXT);
        let targets: Vec<_> = links.iter().map(|link| link.target.as_str()).collect();
        assert_eq!(targets, ["z.md#e", "q.svg", "r.svg"]);
        assert_eq!(&TEXT[links[0].text.clone()], "**x** `y`");
        assert_eq!(&TEXT[links[0].range.clone()], "[**x** `y`](z.md#e)");
    }

    #[test]
    fn only_the_chosen_links_are_replaced() {
        let replaced =
            replace_links(TEXT, |text, link| link.target.contains('#').then(|| text.into()));
        assert_eq!(replaced, TEXT.replace("[**x** `y`](z.md#e)", "**x** `y`"));
    }

    #[test]
    fn equal_headings_have_anchors_of_their_own() {
        assert_eq!(anchors(TEXT), ["a-b-c_d-e", "a-b-c_d-e-1"]);
    }
}
