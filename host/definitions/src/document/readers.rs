//! Functions that read a value of a certain type. Passed to [`Fields::get`](super::Fields::get) or a similar method,
//! they read a field in one line: `fields.get("port", 80, readers::integer(1..=u16::MAX))`.

use std::{fmt, net::IpAddr, ops::RangeInclusive, path::Path, time::Duration};

use admittance_admission::IpNet;
use serde_json::Value as Json;

use super::Node;

/// Reads a string that is not empty.
pub fn text(node: &Node<'_>) -> Option<String> {
    node.text().map(str::to_owned)
}

/// Reads an object with any fields, as JSON.
pub fn json_object(node: &Node<'_>) -> Option<Json> {
    node.object().map(|_| node.json())
}

/// Returns a reader of a whole number in this range.
pub fn integer<T>(range: RangeInclusive<T>) -> impl Fn(&Node<'_>) -> Option<T>
where
    T: TryFrom<i64> + PartialOrd + fmt::Display + Clone,
{
    move |node| node.integer(range.clone())
}

/// Returns a reader of a number of bytes in this range.
pub fn size<T>(range: RangeInclusive<u64>) -> impl Fn(&Node<'_>) -> Option<T>
where
    T: TryFrom<u64>,
{
    move |node| T::try_from(node.size(range.clone())?).ok()
}

/// Returns a reader of a duration in this range.
pub fn duration(range: RangeInclusive<Duration>) -> impl Fn(&Node<'_>) -> Option<Duration> {
    move |node| node.duration(range.clone())
}

/// Reads a network, or a single address as the network of only this address.
pub fn network(node: &Node<'_>) -> Option<IpNet> {
    let parse = |text: &str| {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        text.parse()
            .or_else(|_| address())
            .map_err(|_| format!("{text:?} is not a network; write `10.0.0.0/8`, or one address"))
    };
    node.parse_with(parse)
}

/// Returns a reader of one of these words. Case matters. Messages call a word `noun`, such as `failure policy`.
pub fn one_of<T: Copy>(noun: &'static str, words: &'static [(&'static str, T)]) -> impl Fn(&Node<'_>) -> Option<T> {
    move |node| node.one_of(noun, words)
}

/// Returns a reader of strings that converts them with `parse`. An error of `parse` becomes a mistake.
pub fn parse_with<'a, T, E: fmt::Display>(parse: impl Fn(&'a str) -> Result<T, E>) -> impl Fn(&Node<'a>) -> Option<T> {
    move |node| node.parse_with(&parse)
}

/// Returns a reader of paths that loads the file at the path with `load`. An error of `load` becomes a mistake.
pub fn file_with<T, E: fmt::Display>(load: impl Fn(&Path) -> Result<T, E>) -> impl Fn(&Node<'_>) -> Option<T> {
    move |node| node.accept(load(&node.file_path()?))
}

/// Returns a reader of lists that reads each item with `read`. If one item is invalid, the whole list is.
pub fn list_of<'a, T>(read: impl Fn(&Node<'a>) -> Option<T>) -> impl Fn(&Node<'a>) -> Option<Vec<T>> {
    move |node| node.list_of(&read)
}

/// Returns a reader of lists like [`list_of`], for which an empty list is a mistake with this `fix`.
pub fn filled_list_of<'a, T>(fix: &str, read: impl Fn(&Node<'a>) -> Option<T>) -> impl Fn(&Node<'a>) -> Option<Vec<T>> {
    move |node| node.filled_list_of(fix, &read)
}
