//! Readers of values, for [`Fields::get`](super::Fields::get) and its like: a key of an object is one line,
//! `fields.get("port", 80, readers::integer(1..=u16::MAX), mistakes)`.

use std::{fmt, net::IpAddr, ops::RangeInclusive, path::Path, time::Duration};

use admittance_admission::IpNet;

use super::{Mistakes, Node};

/// A string that is not empty.
pub fn text(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<String> {
    node.text(mistakes).map(str::to_owned)
}

/// A whole number in this range.
pub fn integer<T>(range: RangeInclusive<T>) -> impl Fn(&Node<'_>, &mut Mistakes) -> Option<T>
where
    T: TryFrom<i64> + PartialOrd + fmt::Display + Clone,
{
    move |node, mistakes| node.integer(range.clone(), mistakes)
}

/// A count of bytes in this range.
pub fn size<T>(range: RangeInclusive<u64>) -> impl Fn(&Node<'_>, &mut Mistakes) -> Option<T>
where
    T: TryFrom<u64>,
{
    move |node, mistakes| T::try_from(node.size(range.clone(), mistakes)?).ok()
}

/// A duration in this range.
pub fn duration(range: RangeInclusive<Duration>) -> impl Fn(&Node<'_>, &mut Mistakes) -> Option<Duration> {
    move |node, mistakes| node.duration(range.clone(), mistakes)
}

/// A network, or one address.
pub fn network(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<IpNet> {
    let parse = |text: &str| {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        text.parse()
            .or_else(|_| address())
            .map_err(|_| format!("{text:?} is not a network; write `10.0.0.0/8`, or one address"))
    };
    node.parse_with(parse, mistakes)
}

/// A string that is parsed by this function; its error is the message.
pub fn parse_with<'a, T, E: fmt::Display>(
    parse: impl Fn(&'a str) -> Result<T, E>,
) -> impl Fn(&Node<'a>, &mut Mistakes) -> Option<T> {
    move |node, mistakes| node.parse_with(&parse, mistakes)
}

/// The path of a file that is loaded by this function; its error is the message.
pub fn file_with<T, E: fmt::Display>(
    load: impl Fn(&Path) -> Result<T, E>,
) -> impl Fn(&Node<'_>, &mut Mistakes) -> Option<T> {
    move |node, mistakes| {
        let path = node.file(mistakes)?;
        node.accept(load(&path), mistakes)
    }
}

/// A list whose entries are read by `read`; `None` if one is invalid.
pub fn list_of<'a, T>(
    read: impl Fn(&Node<'a>, &mut Mistakes) -> Option<T>,
) -> impl Fn(&Node<'a>, &mut Mistakes) -> Option<Vec<T>> {
    move |node, mistakes| node.list_of(&read, mistakes)
}

/// Like [`list_of`], with at least one entry. `fix` says what to list.
pub fn filled_list_of<'a, T>(
    fix: &str,
    read: impl Fn(&Node<'a>, &mut Mistakes) -> Option<T>,
) -> impl Fn(&Node<'a>, &mut Mistakes) -> Option<Vec<T>> {
    move |node, mistakes| node.filled_list_of(fix, &read, mistakes)
}
