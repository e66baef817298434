//! Lines in which `<a|b>` stands for either.

/// Which of the alternatives each `<a|b>` of a line stands for.
pub type Choice = Vec<usize>;

/// A part of a line.
enum Part<'a> {
    Text(&'a str),
    Either(Vec<&'a str>),
}

fn parts(line: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = line;
    // What has no `|` is no choice: `x<2>`.
    let mut from = 0;
    while let Some(start) = rest[from..].find('<').map(|at| from + at) {
        match rest[start..].find('>').map(|length| &rest[start + 1..start + length]) {
            Some(inner) if inner.contains('|') && !inner.contains('<') => {
                parts.push(Part::Text(&rest[..start]));
                parts.push(Part::Either(inner.split('|').collect()));
                (rest, from) = (&rest[start + inner.len() + 2..], 0);
            }
            _ => from = start + 1,
        }
    }
    parts.push(Part::Text(rest));
    parts
}

/// The lines that a line stands for, and what was chosen for each.
pub fn expanded(line: &str) -> Vec<(String, Choice)> {
    let mut all = vec![(String::new(), Choice::new())];
    for part in parts(line) {
        let alternatives = match &part {
            Part::Text(text) => {
                all.iter_mut().for_each(|(line, _)| *line += text);
                continue;
            }
            Part::Either(alternatives) => alternatives,
        };
        let one = |(line, choice): &(String, Choice)| {
            let with = |(i, text): (usize, &&str)| {
                (format!("{line}{text}"), choice.iter().copied().chain([i]).collect())
            };
            alternatives.iter().enumerate().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(one).collect();
    }
    all
}

/// The choices of a line in as few lines as are easily found: `{a,b}` stands for either.
pub fn grouped(line: &str, choices: &[Choice]) -> Vec<String> {
    if choices.is_empty() {
        return Vec::new();
    }
    let parts = parts(line);
    let places = choices[0].len();
    let values: Vec<Vec<usize>> = (0..places)
        .map(|place| {
            let mut values: Vec<usize> = choices.iter().map(|choice| choice[place]).collect();
            values.sort_unstable();
            values.dedup();
            values
        })
        .collect();
    if values.iter().map(Vec::len).product::<usize>() == choices.len() {
        let mut place = values.iter();
        let text = parts.iter().map(|part| match part {
            Part::Text(text) => (*text).to_owned(),
            Part::Either(alternatives) => {
                let chosen: Vec<&str> =
                    place.next().into_iter().flatten().map(|&i| alternatives[i]).collect();
                match chosen[..] {
                    [one] => one.to_owned(),
                    _ => format!("{{{}}}", chosen.join(",")),
                }
            }
        });
        return vec![text.collect()];
    }
    // Divided at the place with the fewest values.
    let several = (0..places).filter(|&place| values[place].len() > 1);
    let place = several.min_by_key(|&place| values[place].len()).unwrap_or(0);
    values[place]
        .iter()
        .flat_map(|&value| {
            let part: Vec<Choice> =
                choices.iter().filter(|choice| choice[place] == value).cloned().collect();
            grouped(line, &part)
        })
        .collect()
}
