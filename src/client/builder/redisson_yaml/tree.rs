//! A YAML file as maps, lists and text. Scalars keep the file's text: a password of `0123` is not a number.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};

/// A value in the file. A null counts as absent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Text(String),
    List(Vec<Node>),
    Map(Map),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Map {
    /// The Java class named by the tag, such as `!<org.redisson.config.HostNatMapper>`.
    pub(super) class: String,
    pub(super) entries: Vec<(String, Node)>,
}

impl Map {
    /// Reads a file whose root is a map.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut events = Parser::new_from_str(text);
        let mut next = move || match events.next() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(error.to_string()),
            None => Ok(Event::StreamEnd),
        };
        loop {
            match next()? {
                Event::StreamEnd => return Err("there are no settings".to_owned()),
                Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
                first => {
                    return match node(first, &mut next, DEEPEST)? {
                        Some(Node::Map(map)) => Ok(map),
                        _ => Err("settings must be of the form `name: value`".to_owned()),
                    };
                }
            }
        }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Node> {
        let at = self.entries.iter().rposition(|(key, _)| key == name)?;
        Some(self.entries.remove(at).1)
    }
}

/// How deep settings may be nested; Redisson's go three deep. Each level takes room on the stack.
const DEEPEST: usize = 32;

/// The node that begins with this event, nested at most this deep.
fn node<'a>(
    first: Event<'a>,
    next: &mut impl FnMut() -> Result<Event<'a>, String>,
    deepest: usize,
) -> Result<Option<Node>, String> {
    let deepest = deepest.checked_sub(1).ok_or("settings are nested too deep")?;
    Ok(match first {
        Event::Scalar(text, ScalarStyle::Plain, ..)
            if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") =>
        {
            None
        }
        Event::Scalar(text, ..) => Some(Node::Text(text.into_owned())),
        Event::SequenceStart(..) => {
            let mut list = Vec::new();
            loop {
                match next()? {
                    Event::SequenceEnd => break Some(Node::List(list)),
                    first => list.extend(node(first, next, deepest)?),
                }
            }
        }
        Event::MappingStart(_, tag) => {
            let class = tag.as_deref().map_or(String::new(), class);
            let mut entries = Vec::new();
            loop {
                let key = match next()? {
                    Event::MappingEnd => break Some(Node::Map(Map { class, entries })),
                    Event::Scalar(key, ..) => key.into_owned(),
                    _ => return Err("the name of a setting must be text".to_owned()),
                };
                let first = next()?;
                entries.extend(node(first, next, deepest)?.map(|node| (key, node)));
            }
        }
        Event::Alias(_) => return Err("anchors are not supported".to_owned()),
        _ => return Err("it ends within a setting".to_owned()),
    })
}

fn class(tag: &Tag) -> String {
    let class = format!("{}{}", tag.handle, tag.suffix);
    class.trim_start_matches('!').to_owned()
}

/// The variables in a text, `${name}` or `${name:-default}`: where, name and default. As in Redisson, a name consists of
/// letters, digits, `_` and dots; anything else is text, and may be part of a password.
fn variables(text: &str) -> impl Iterator<Item = (Range<usize>, &str, Option<&str>)> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    text.match_indices("${").filter_map(move |(start, _)| {
        let inside = &text[start + 2..];
        let (inside, _) = inside.split_once('}').filter(|(inside, _)| !inside.contains('\n'))?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let range = start..start + 2 + inside.len() + 1;
        (!name.is_empty() && name.bytes().all(is_of_name)).then_some((range, name, default))
    })
}

/// The name of the first variable in the text that has not been replaced.
pub(super) fn first_variable(text: &str) -> Option<&str> {
    variables(text).next().map(|(_, name, _)| name)
}

/// Replaces variables by what `value_of` knows, or by the default. Others stay as they are, as in Redisson, because they
/// may be in a comment.
pub(super) fn with_variables(text: &str, value_of: impl Fn(&str) -> Option<String>) -> String {
    let (mut replaced, mut end) = (String::with_capacity(text.len()), 0);
    for (range, name, default) in variables(text) {
        // Otherwise it is within the default of another one.
        if range.start >= end
            && let Some(value) = value_of(name).or(default.map(str::to_owned))
        {
            replaced.push_str(&text[end..range.start]);
            replaced.push_str(&value);
            end = range.end;
        }
    }
    replaced + &text[end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_defaults_or_stay() {
        let known = |name: &str| (name == "HOST").then(|| "db".to_owned());
        for (text, expected) in [
            ("redis://${HOST}:${PORT:-6379}", "redis://db:6379"),
            ("${HOST:-other}", "db"),
            ("${NONE:-}", ""),
            ("# ${NONE} ${HOST}", "# ${NONE} db"),
            ("${", "${"),
            ("p${HOST\n}${not-a-name:-x}", "p${HOST\n}${not-a-name:-x}"),
            ("ü${HOST}ü", "üdbü"),
        ] {
            assert_eq!(with_variables(text, known), expected);
        }
    }

    #[test]
    fn scalars_keep_their_text_and_maps_their_class() {
        let text = "a: 0123\nb: 'null'\nc: null\nd: [1, x]\ne: !<org.redisson.X> {f: yes}\n";
        let mut map = Map::read(text).unwrap();
        let said = |text: &str| Some(Node::Text(text.to_owned()));
        assert_eq!(map.take("a"), said("0123"));
        assert_eq!(map.take("b"), said("null"));
        assert_eq!(map.take("c"), None);
        assert!(matches!(map.take("d"), Some(Node::List(list)) if list.len() == 2));
        let Some(Node::Map(mut inner)) = map.take("e") else { panic!("{map:?}") };
        assert_eq!(inner.class, "org.redisson.X");
        assert_eq!(inner.take("f"), said("yes"));
        assert_eq!(map.entries, []);
        let deep = format!("a: {}", "[".repeat(100_000));
        for text in ["", "- a", "a: [", "a: *b", &deep] {
            assert!(Map::read(text).is_err(), "{text}");
        }
    }
}
