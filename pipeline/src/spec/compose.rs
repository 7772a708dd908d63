//! Puts a written spec together: the file, what it `extends`, and `--set` arguments.

use super::conform::{nearest_path, paths};
use super::diagnostics::{Errors, Place, Source, Sources, SpecError, did_you_mean, listed, quoted};
use super::read::{MAX_BYTES, decode, read};
use super::tree::{Key, Node, Value};
use super::view::{Schema, join};
use super::written::{op_of, spec_schema};
use cosplay_operators::registry::OperatorInfo;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest chain of files, the first included.
const MAX_CHAIN: usize = 8;

/// Reads `path` and all that it extends. `None` if some file of the chain could not be read as YAML at all.
pub(crate) fn read_chain(path: &Path, sources: &mut Sources, errors: &mut Errors) -> Option<Node> {
    let mut chain = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut next = Some((path.to_path_buf(), None));
    while let Some((path, place)) = next.take() {
        let identity = path.canonicalize().unwrap_or_else(|_| path.clone());
        if let Some(at) = seen.iter().position(|earlier| *earlier == identity) {
            let names = seen[at..].iter().chain([&identity]).map(|path| file_name(path)).collect::<Vec<_>>();
            let error = SpecError::new(place, "extends", format!("the files extend each other in a loop: {}", names.join(" → ")));
            errors.push(error.help("remove one `extends`"));
            return None;
        }
        if chain.len() == MAX_CHAIN {
            let message = format!("a spec extends at most {} files in a row", MAX_CHAIN - 1);
            errors.push(SpecError::new(place, "extends", message));
            return None;
        }
        seen.push(identity);
        let mut node = read_file(&path, place, sources, errors)?;
        next = take_extends(&mut node, &path, errors)?.map(|(base, place)| (base, Some(place)));
        chain.push(node);
    }
    let base = chain.pop()?;
    Some(chain.into_iter().rev().fold(base, merge))
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Reads one file; `asked` is the place of the `extends` that names it.
fn read_file(path: &Path, asked: Option<Place>, sources: &mut Sources, errors: &mut Errors) -> Option<Node> {
    let key = if asked.is_some() { "extends" } else { "" };
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            errors.push(SpecError::new(asked, key, format!("cannot read `{}`: {error}", path.display())));
            return None;
        }
    };
    let name = path.display().to_string();
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let decoded = decode(&bytes, sources.next());
    let text = decoded.as_ref().copied().unwrap_or_default();
    let source = sources.add(Source { name, text: text.into(), folder, is_set: false });
    let text = match decoded {
        Ok(text) => text,
        Err(error) => {
            errors.push(error);
            return None;
        }
    };
    let node = read(text, source, 0, errors)?;
    if node.as_map().is_none() {
        let error = SpecError::new(node.place, "", format!("expected a map of keys, found {}", node.found()));
        errors.push(error.help("a spec starts with `version: 1`"));
        return None;
    }
    Some(node)
}

fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes the key `extends` and gives the file that it names. `None` if its value is no file name.
fn take_extends(node: &mut Node, path: &Path, errors: &mut Errors) -> Option<Option<(PathBuf, Place)>> {
    let Value::Map(entries) = &mut node.value else {
        return Some(None);
    };
    let Some(at) = entries.iter().position(|(key, _)| key.text == "extends") else {
        return Some(None);
    };
    let (_, value) = entries.remove(at);
    match value.as_text() {
        Some(name) if !name.is_empty() => {
            let folder = path.parent().unwrap_or(Path::new(""));
            Some(Some((folder.join(name), value.place)))
        }
        _ => {
            let message = format!("expected the name of another spec, found {}", value.found());
            errors.push(SpecError::new(value.place, "extends", message));
            None
        }
    }
}

/// Lays `over` on `base`: maps are merged key by key, all else is replaced, and null removes a key of the base.
fn merge(base: Node, over: Node) -> Node {
    let place = over.place;
    match (base.value, over.value) {
        (Value::Map(mut merged), Value::Map(entries)) => {
            let index: BTreeMap<String, usize> = merged.iter().enumerate().map(|(at, (key, _))| (key.text.clone(), at)).collect();
            let mut removed = vec![false; merged.len()];
            for (key, value) in entries {
                match index.get(&key.text) {
                    Some(&at) if value.is_null() => removed[at] = true,
                    Some(&at) => {
                        let empty = Node { value: Value::Null, place };
                        let under = std::mem::replace(&mut merged[at].1, empty);
                        merged[at] = (key, merge(under, value));
                    }
                    None => merged.push((key, value)),
                }
            }
            let mut removed = removed.into_iter();
            merged.retain(|_| !removed.next().unwrap_or(false));
            Node { value: Value::Map(merged), place }
        }
        (_, value) => Node { value, place },
    }
}

/// Changes one value of the tree as `--set a.b.c=VALUE` says.
pub(crate) fn set(root: &mut Node, argument: &str, registry: &[&'static OperatorInfo], sources: &mut Sources, errors: &mut Errors) {
    let folder = std::env::current_dir().unwrap_or_default();
    let source = sources.add(Source { name: "--set".to_owned(), text: argument.into(), folder, is_set: true });
    let place = |column: usize, width: usize| Place { source, line: 1, column, width: width.max(1) };
    let Some((path, text)) = argument.split_once('=') else {
        let error = SpecError::new(place(1, argument.chars().count()), "", "expected KEY=VALUE after `--set`");
        errors.push(error.help("for example --set graph.rollouts.starts=2"));
        return;
    };
    let path_place = place(1, path.chars().count());
    if argument.len() > MAX_BYTES || argument.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        errors.push(SpecError::new(path_place, "", "not a text: control characters, or longer than 1 MiB"));
        return;
    }
    if !known_path(root, path, path_place, registry, errors) {
        return;
    }
    let value = match text.trim().is_empty() {
        true => Node { value: Value::Null, place: place(path.chars().count() + 1, 1) },
        false => match read(text, source, path.chars().count() + 1, errors) {
            Some(value) => value,
            None => return,
        },
    };
    let keys: Vec<&str> = path.split('.').collect();
    if let Err(error) = insert(root, &keys, 0, value, path_place) {
        errors.push(*error);
    }
}

/// True if the spec could have a key of that path; else says which was probably meant.
fn known_path(root: &Node, path: &str, place: Place, registry: &[&'static OperatorInfo], errors: &mut Errors) -> bool {
    let mut valid = Vec::new();
    paths(Schema::new(&spec_schema()), "", &mut valid);
    valid.retain(|path| path != "extends" && path != "graph.");
    for (key, node) in root.get("graph").and_then(Node::as_map).unwrap_or_default() {
        node_paths(&join("graph", &key.text), node, registry, &mut valid);
    }
    if valid.iter().any(|valid| valid == path || (valid.ends_with('.') && path.starts_with(valid.as_str()))) {
        return true;
    }
    let error = SpecError::new(place, "", format!("the spec has no key {}", quoted(path)));
    if path == "extends" {
        errors.push(error.help("`extends` can only be written in the file"));
        return false;
    }
    let help = match nearest_path(path, &valid) {
        Some(nearest) => Some(format!("did you mean `{nearest}`?")),
        None => same_key_elsewhere(path, &valid).or_else(|| siblings(path, &valid)),
    };
    errors.push(error.maybe_help(help));
    false
}

/// Paths that end in the same key, if the path is that key alone.
fn same_key_elsewhere(path: &str, valid: &[String]) -> Option<String> {
    let ending = format!(".{path}");
    let elsewhere: Vec<&str> = valid.iter().filter(|path| path.ends_with(&ending)).map(String::as_str).take(4).collect();
    if path.is_empty() || elsewhere.is_empty() { None } else { Some(format!("did you mean {}?", listed(elsewhere))) }
}

/// The keys that the nearest known map above `path` may have.
fn siblings(path: &str, valid: &[String]) -> Option<String> {
    let mut above = path;
    loop {
        let (parent, _) = above.rsplit_once('.').unwrap_or(("", above));
        let prefix = if parent.is_empty() { String::new() } else { format!("{parent}.") };
        let here: Vec<&str> =
            valid.iter().filter_map(|path| path.strip_prefix(&prefix)).filter(|rest| !rest.is_empty() && !rest.contains('.')).collect();
        if !here.is_empty() {
            let whole = if parent.is_empty() { "the spec".to_owned() } else { format!("`{parent}`") };
            return Some(format!("keys of {whole}: {}", listed(here)));
        }
        if parent.is_empty() {
            return None;
        }
        above = parent;
    }
}

fn node_paths(path: &str, node: &Node, registry: &[&'static OperatorInfo], valid: &mut Vec<String>) {
    valid.push(path.to_owned());
    valid.push(join(path, "op"));
    let Some(info) = op_of(node, registry) else {
        valid.push(format!("{path}."));
        return;
    };
    for port in info.inputs {
        let path = join(path, port.name);
        valid.extend([path.clone(), join(&path, "initial"), join(&path, "then")]);
    }
    let schema = (info.schema)().to_value();
    paths(Schema::new(&schema), path, valid);
}

fn insert(node: &mut Node, keys: &[&str], done: usize, value: Node, place: Place) -> Result<(), Box<SpecError>> {
    let Some(key) = keys.get(done) else {
        *node = value;
        return Ok(());
    };
    if node.is_null() {
        *node = Node { value: Value::Map(Vec::new()), place };
    }
    let found = node.found();
    let Value::Map(entries) = &mut node.value else {
        let path = keys[..done].join(".");
        let error = SpecError::new(place, "", format!("`{path}` is {found}, so it has no key `{key}`"));
        return Err(Box::new(error.help(format!("set `{path}` as a whole: --set '{path}={{ {key}: … }}'"))));
    };
    let at = entries.iter().position(|(own, _)| own.text == *key);
    let last = done + 1 == keys.len();
    match at {
        Some(at) if last && value.is_null() => {
            entries.remove(at);
            Ok(())
        }
        Some(at) => {
            if last {
                entries[at].0.place = place;
            }
            insert(&mut entries[at].1, keys, done + 1, value, place)
        }
        None if value.is_null() => Ok(()),
        None => {
            entries.push((Key { text: (*key).to_owned(), place }, Node { value: Value::Null, place }));
            let at = entries.len() - 1;
            insert(&mut entries[at].1, keys, done + 1, value, place)
        }
    }
}

/// Origin of every value of the tree, by key path.
pub(crate) fn origins(root: &Node, sources: &Sources) -> BTreeMap<String, String> {
    fn walk(node: &Node, path: &str, sources: &Sources, out: &mut BTreeMap<String, String>) {
        match node.as_map() {
            Some(entries) => entries.iter().for_each(|(key, value)| walk(value, &join(path, &key.text), sources, out)),
            None => {
                out.insert(path.to_owned(), sources.origin(node.place));
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(root, "", sources, &mut out);
    out
}

/// Help for a node that is not there.
pub(crate) fn missing_node_help<'a>(name: &str, fitting: &[&'a str], all: &[&'a str]) -> Option<String> {
    did_you_mean(name, fitting.iter().copied()).or_else(|| did_you_mean(name, all.iter().copied()))
}
