//! Reads YAML into a tree with places, within limits on size, depth and aliases.

use super::diagnostics::{Errors, Place, SpecError, quoted};
use super::tree::{Key, Node, Value, plain_scalar};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::BTreeMap;

/// Largest file.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of maps and lists.
pub(crate) const MAX_DEPTH: usize = 64;
/// Most aliases (`*name`) in a file.
pub(crate) const MAX_ALIASES: usize = 100;
/// Most values in a file, those that aliases repeat included.
pub(crate) const MAX_NODES: usize = 100_000;

/// Checks that bytes are text: valid UTF-8 without control characters, and not too long.
pub(crate) fn decode(bytes: &[u8], source: usize) -> Result<&str, SpecError> {
    let mut place = Place { source, line: 1, column: 1, width: 1 };
    if bytes.len() > MAX_BYTES {
        return Err(SpecError::new(place, "", format!("the file has more than {MAX_BYTES} bytes (1 MiB)")));
    }
    let good = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    for character in good.chars() {
        match character {
            '\n' => (place.line, place.column) = (place.line + 1, 0),
            '\t' | '\r' | '\u{85}' => {}
            _ if character.is_control() => {
                let message = format!("not a text file: it has the control character U+{:04X}", u32::from(character));
                return Err(SpecError::new(place, "", message).help("a spec is a YAML file in UTF-8"));
            }
            _ => {}
        }
        place.column += 1;
    }
    if let Some(byte) = bytes.get(good.len()) {
        let message = format!("not a text file: the byte 0x{byte:02x} is not UTF-8");
        return Err(SpecError::new(place, "", message).help("a spec is a YAML file in UTF-8"));
    }
    Ok(good.strip_prefix('\u{feff}').unwrap_or(good))
}

/// Reads one document. `column` is added to the columns of the first line (the text may be the tail of a longer line). Faults that leave a
/// tree to go on with are added to `errors`; the answer is `None` if none is left, then at least one error was added.
pub(crate) fn read(text: &str, source: usize, column: usize, errors: &mut Errors) -> Option<Node> {
    let mut reader = Reader { source, column, errors, stack: Vec::new(), root: None, anchors: BTreeMap::new(), nodes: 0, aliases: 0 };
    match reader.run(text) {
        Ok(()) => reader.root,
        Err(error) => {
            reader.errors.push(*error);
            None
        }
    }
}

/// A map or list that is not closed yet.
struct Open {
    place: Place,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, seen: BTreeMap<String, Place>, key: Pending },
}

/// The key whose value comes next.
enum Pending {
    None,
    Key(Key),
    /// The key was refused; its value is read and dropped.
    Refused,
}

struct Anchored {
    node: Node,
    nodes: usize,
    depth: usize,
}

struct Reader<'e> {
    source: usize,
    column: usize,
    errors: &'e mut Errors,
    stack: Vec<Open>,
    root: Option<Node>,
    anchors: BTreeMap<usize, Anchored>,
    nodes: usize,
    aliases: usize,
}

type Step = Result<(), Box<SpecError>>;

impl Reader<'_> {
    fn run(&mut self, text: &str) -> Step {
        let mut parser = Parser::new_from_str(text);
        let mut documents = 0;
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| {
                let marker = error.marker();
                let place = self.place_at(marker.line(), marker.col(), 1);
                // The parser has a limit on the nesting of `[` and `{` of its own, looser than ours, which it can meet first.
                let message = match error.info().contains("recursion limit") {
                    true => too_deep(),
                    false => format!("not valid YAML: {}", error.info()),
                };
                Box::new(SpecError::new(place, "", message))
            })?;
            let place = self.place(&span);
            match event {
                Event::DocumentStart(_) => {
                    documents += 1;
                    if documents > 1 {
                        let error = SpecError::new(place, "", "a second YAML document starts here; a spec is one document");
                        return Err(Box::new(error.help("remove the line `---` or move the rest into a file of its own")));
                    }
                }
                Event::Alias(anchor) => self.alias(anchor, place)?,
                Event::Scalar(text, style, anchor, tag) => {
                    self.refuse_tag(tag.is_some(), place);
                    let value = self.scalar(&text, style, place);
                    self.add(Node { value, place }, anchor, style == ScalarStyle::Plain)?;
                }
                Event::SequenceStart(anchor, tag) => {
                    self.refuse_tag(tag.is_some(), place);
                    self.open(place, anchor, Content::List(Vec::new()))?;
                }
                Event::MappingStart(anchor, tag) => {
                    self.refuse_tag(tag.is_some(), place);
                    let content = Content::Map { entries: Vec::new(), seen: BTreeMap::new(), key: Pending::None };
                    self.open(place, anchor, content)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.close()?,
                Event::StreamEnd => break,
                Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            }
        }
        if self.root.is_none() {
            let error = SpecError::new(self.place_at(1, 0, 1), "", "there is nothing in it");
            return Err(Box::new(error.help("a spec starts with `version: 1`")));
        }
        Ok(())
    }

    fn place(&self, span: &Span) -> Place {
        let same_line = span.start.line() == span.end.line();
        let width = if same_line { span.end.col().saturating_sub(span.start.col()) } else { 1 };
        self.place_at(span.start.line(), span.start.col(), width)
    }

    /// Place from a line counted from 1 and a column counted from 0, as the parser does.
    fn place_at(&self, line: usize, column: usize, width: usize) -> Place {
        let shift = if line <= 1 { self.column } else { 0 };
        Place { source: self.source, line: line.max(1), column: column + 1 + shift, width: width.max(1) }
    }

    fn refuse_tag(&mut self, tagged: bool, place: Place) {
        if tagged {
            let error = SpecError::new(place, self.path(), "YAML tags (`!name`) are not used in specs");
            self.errors.push(error.help("remove the tag; quote a value to make it text"));
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, place: Place) -> Value {
        if style != ScalarStyle::Plain {
            return Value::Text(text.to_owned());
        }
        plain_scalar(text).unwrap_or_else(|| {
            self.errors.push(SpecError::new(place, self.path(), format!("{} is not a finite number", quoted(text))));
            Value::Null
        })
    }

    /// Key path of the value that comes next.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.stack {
            match &open.content {
                Content::List(items) => path.push_str(&format!("[{}]", items.len())),
                Content::Map { key: Pending::Key(key), .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.extend(key.text.chars().take(64));
                }
                Content::Map { .. } => {}
            }
        }
        path
    }

    fn open(&mut self, place: Place, anchor: usize, content: Content) -> Step {
        if self.stack.len() >= MAX_DEPTH {
            return Err(Box::new(SpecError::new(place, "", too_deep())));
        }
        self.stack.push(Open { place, anchor, content });
        Ok(())
    }

    fn close(&mut self) -> Step {
        let Some(open) = self.stack.pop() else {
            return Ok(());
        };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(entries),
        };
        self.add(Node { value, place: open.place }, open.anchor, false)
    }

    fn count(&mut self, nodes: usize, place: Place) -> Step {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values, counting those that aliases repeat");
            return Err(Box::new(SpecError::new(place, "", message)));
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Step {
        self.aliases += 1;
        if self.aliases > MAX_ALIASES {
            let message = format!("more than {MAX_ALIASES} aliases (`*name`)");
            return Err(Box::new(SpecError::new(place, "", message)));
        }
        let Some((nodes, depth)) = self.anchors.get(&anchor).map(|anchored| (anchored.nodes, anchored.depth)) else {
            return Err(Box::new(SpecError::new(place, self.path(), "this alias names the very value that it is part of")));
        };
        if self.stack.len() + depth > MAX_DEPTH + 1 {
            let message = format!("with this alias, maps and lists are nested more than {MAX_DEPTH} deep");
            return Err(Box::new(SpecError::new(place, "", message)));
        }
        self.count(nodes, place)?;
        match self.anchors.get(&anchor).map(|anchored| anchored.node.clone()) {
            Some(node) => self.attach(node, false),
            None => Ok(()),
        }
    }

    /// Takes a finished value: remembers it if it has an anchor, and puts it where it belongs.
    fn add(&mut self, node: Node, anchor: usize, plain: bool) -> Step {
        self.count(1, node.place)?;
        if anchor > 0 {
            let (nodes, depth) = node.measure();
            // The copy counts as well: anchors within anchors would otherwise multiply the memory by the depth.
            self.count(nodes, node.place)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, depth });
        }
        self.attach(node, plain)
    }

    fn attach(&mut self, node: Node, plain: bool) -> Step {
        let is_key = matches!(self.stack.last(), Some(Open { content: Content::Map { key: Pending::None, .. }, .. }));
        let path = if is_key { self.path() } else { String::new() };
        match self.stack.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, seen, key }) => match std::mem::replace(key, Pending::None) {
                Pending::None => *key = pending(node, plain, seen, &path, self.errors),
                Pending::Key(key) => entries.push((key, node)),
                Pending::Refused => {}
            },
        }
        Ok(())
    }
}

fn too_deep() -> String {
    format!("maps and lists are nested more than {MAX_DEPTH} deep")
}

/// Turns a value that stands where a key must be into that key.
fn pending(node: Node, plain: bool, seen: &mut BTreeMap<String, Place>, path: &str, errors: &mut Errors) -> Pending {
    let place = node.place;
    let text = match node.value {
        Value::Text(text) => text,
        Value::Number(number) => number.text,
        Value::Bool(value) => value.to_string(),
        Value::Null => "null".to_owned(),
        Value::List(_) | Value::Map(_) => {
            errors.push(SpecError::new(place, path, "a key must be a word, not a list or map"));
            return Pending::Refused;
        }
    };
    let full = if path.is_empty() { text.clone() } else { format!("{path}.{text}") };
    if plain && text == "<<" {
        let error = SpecError::new(place, full, "merge keys (`<<`) are not used in specs");
        errors.push(error.help("use `extends: base.yaml` to build on another spec, or write the keys out"));
        return Pending::Refused;
    }
    if let Some(first) = seen.get(&text) {
        let message = format!("this key was given before, in line {}", first.line);
        errors.push(SpecError::new(place, full, message).help("remove one of the two"));
        return Pending::Refused;
    }
    seen.insert(text.clone(), place);
    Pending::Key(Key { text, place })
}

#[cfg(test)]
mod tests;
