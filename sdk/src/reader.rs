//! Reads the few fields of a document that a plugin needs, and skips the others without parsing them.
//!
//! `serde_json` checks each byte that it skips, which takes most of the time of a call with a large object. The host
//! has already checked the document, so quotes and brackets are enough to find the end of a value. If this reader
//! cannot read a document, because of a mistake or because of something such as a map whose keys are numbers,
//! `serde_json` reads the document again from the start. So results and messages are the same as without this reader.

use std::borrow::Cow;
use std::{fmt, iter};

use serde::de::value::{BorrowedStrDeserializer, MapDeserializer, StringDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

/// The maximum nesting of the values that are read; `serde_json` has the same limit.
const MAX_DEPTH: usize = 128;

/// Reads a JSON document from the host as a type.
///
/// # Errors
/// Fails if the document cannot be parsed as the type. A mistake inside of a skipped value may go unnoticed.
pub(crate) fn from_json<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, serde_json::Error> {
    read_fields(text).or_else(|SlowPath| serde_json::from_str(text))
}

fn read_fields<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, SlowPath> {
    let mut cursor = ReaderCursor {
        text,
        position: 0,
        depth: 0,
    };
    let value = T::deserialize(&mut cursor)?;
    match cursor.next_byte() {
        None => Ok(value),
        Some(_) => Err(SlowPath),
    }
}

/// The error of the fast reader if it cannot read a document. The document must then be read by `serde_json`.
#[derive(Debug)]
struct SlowPath;

impl fmt::Display for SlowPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the document cannot be read")
    }
}

impl std::error::Error for SlowPath {}

impl de::Error for SlowPath {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

struct ReaderCursor<'de> {
    text: &'de str,
    position: usize,
    depth: usize,
}

impl<'de> ReaderCursor<'de> {
    /// Skips white space, and returns the byte after it without moving past that byte.
    fn next_byte(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let b' ' | b'\n' | b'\r' | b'\t' = bytes.get(self.position)? {
            self.position += 1;
        }
        bytes.get(self.position).copied()
    }

    fn skip_byte(&mut self, expected: u8) -> Result<(), SlowPath> {
        if self.next_byte() != Some(expected) {
            return Err(SlowPath);
        }
        self.position += 1;
        Ok(())
    }

    fn take_value(&mut self) -> Result<&'de str, SlowPath> {
        let first = self.next_byte().ok_or(SlowPath)?;
        let start = self.position;
        match first {
            b'"' => self.position = string_end(self.text.as_bytes(), start + 1)?.0,
            b'{' | b'[' => self.skip_nested()?,
            _ => {
                let rest = self.text.as_bytes().get(start..).ok_or(SlowPath)?;
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.position += rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        self.text.get(start..self.position).ok_or(SlowPath)
    }

    /// Moves past an object or a list, however deep it is.
    fn skip_nested(&mut self) -> Result<(), SlowPath> {
        let bytes = self.text.as_bytes();
        let mut position = self.position;
        let mut depth = 0_usize;
        loop {
            let byte = *bytes.get(position).ok_or(SlowPath)?;
            position += 1;
            match byte {
                b'"' => position = string_end(bytes, position)?.0,
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 1 => break,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
        }
        self.position = position;
        Ok(())
    }

    fn take_string(&mut self) -> Result<Cow<'de, str>, SlowPath> {
        if self.next_byte() != Some(b'"') {
            return Err(SlowPath);
        }
        let start = self.position;
        let (end, has_escapes) = string_end(self.text.as_bytes(), start + 1)?;
        self.position = end;
        if has_escapes {
            let text = self.text.get(start..end).ok_or(SlowPath)?;
            return serde_json::from_str(text).map(Cow::Owned).map_err(|_| SlowPath);
        }
        let content = self.text.get(start + 1..end - 1);
        content.map(Cow::Borrowed).ok_or(SlowPath)
    }

    fn value_parser(&mut self) -> Result<serde_json::Deserializer<serde_json::de::StrRead<'de>>, SlowPath> {
        self.take_value().map(serde_json::Deserializer::from_str)
    }

    fn read_nested<T>(
        &mut self,
        [open, close]: [u8; 2],
        read_items: impl FnOnce(&mut Items<'_, 'de>) -> Result<T, SlowPath>,
    ) -> Result<T, SlowPath> {
        self.skip_byte(open)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(SlowPath);
        }
        let mut items = Items {
            cursor: self,
            closing_bracket: close,
            is_first: true,
        };
        let value = read_items(&mut items)?;
        self.depth -= 1;
        self.skip_byte(close).map(|()| value)
    }
}

/// Finds the end of the string whose content begins at `position`. Returns the position after its closing quote, and
/// whether the string contains escapes.
///
/// Eight bytes are compared with the quote and with the backslash at once. A byte that is equal gives zero, and `zeros`
/// sets the highest bit of each byte that is zero. It may set this bit in later bytes too, but only the first of these
/// bytes is used.
#[inline]
fn string_end(bytes: &[u8], mut position: usize) -> Result<(usize, bool), SlowPath> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH_BITS: u64 = u64::from_le_bytes([0x80; 8]);
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH_BITS;
    let mut has_escapes = false;
    loop {
        if let Some(word) = bytes.get(position..).and_then(<[u8]>::first_chunk::<8>) {
            let word = u64::from_le_bytes(*word);
            let mask = zeros(word ^ u64::from_le_bytes([b'"'; 8])) | zeros(word ^ u64::from_le_bytes([b'\\'; 8]));
            if mask == 0 {
                position += 8;
                continue;
            }
            position += mask.trailing_zeros() as usize / 8;
        }
        match bytes.get(position).ok_or(SlowPath)? {
            b'"' => return Ok((position + 1, has_escapes)),
            b'\\' => {
                has_escapes = true;
                position += 2;
            }
            _ => position += 1,
        }
    }
}

impl<'de> Deserializer<'de> for &mut ReaderCursor<'de> {
    type Error = SlowPath;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SlowPath> {
        self.value_parser()?.deserialize_any(visitor).map_err(|_| SlowPath)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SlowPath> {
        self.take_value()?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SlowPath> {
        if self.next_byte() == Some(b'n') {
            self.take_value()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SlowPath> {
        match self.take_string()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SlowPath> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SlowPath> {
        self.read_nested(*b"[]", |items| visitor.visit_seq(items))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SlowPath> {
        self.read_nested(*b"{}", |items| visitor.visit_map(items))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SlowPath> {
        self.deserialize_map(visitor)
    }

    /// Deserializes a type with a single unnamed field. `serde_json` defines its `RawValue` as such a type, with a name
    /// that begins with `$`. A `RawValue` gets the JSON text of the value, which is not parsed.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, SlowPath> {
        if name.starts_with('$') {
            let text = BorrowedStrDeserializer::new(self.take_value()?);
            return visitor.visit_map(MapDeserializer::new(iter::once((name, text))));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SlowPath> {
        self.value_parser()?
            .deserialize_enum(name, variants, visitor)
            .map_err(|_| SlowPath)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple
        tuple_struct identifier
    }
}

struct Items<'a, 'de> {
    cursor: &'a mut ReaderCursor<'de>,
    closing_bracket: u8,
    is_first: bool,
}

impl Items<'_, '_> {
    /// Moves to the next item of the object or list. Returns false at the closing bracket.
    fn advance(&mut self) -> Result<bool, SlowPath> {
        if self.cursor.next_byte() == Some(self.closing_bracket) {
            return Ok(false);
        }
        if !self.is_first {
            self.cursor.skip_byte(b',')?;
        }
        self.is_first = false;
        Ok(true)
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = SlowPath;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, SlowPath> {
        if self.advance()? {
            seed.deserialize(&mut *self.cursor).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<'de> MapAccess<'de> for &mut Items<'_, 'de> {
    type Error = SlowPath;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SlowPath> {
        if !self.advance()? {
            return Ok(None);
        }
        let key = self.cursor.take_string()?;
        self.cursor.skip_byte(b':')?;
        match key {
            Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)),
            Cow::Owned(key) => seed.deserialize(StringDeserializer::new(key)),
        }
        .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, SlowPath> {
        seed.deserialize(&mut *self.cursor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, value::RawValue};

    use super::*;
    use crate::Text;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ReaderView<'a> {
        #[serde(borrow)]
        name: Option<Text<'a>>,
        count: Option<i32>,
        list: Option<Vec<NestedReader<'a>>>,
        phase: Option<ReaderPhase>,
        by_number: Option<BTreeMap<u32, bool>>,
        pair: Option<(u8, f64)>,
        whole: Option<Value>,
        wrapped: Option<WrappedText>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct NestedReader<'a> {
        #[serde(borrow)]
        key: Text<'a>,
        #[serde(flatten)]
        others: BTreeMap<String, Value>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum ReaderPhase {
        Running,
        Failed(String),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct WrappedText(String);

    #[derive(Deserialize)]
    struct RawText<'a> {
        #[serde(borrow)]
        whole: Option<&'a RawValue>,
    }

    const DOCUMENTS: &[&str] = &[
        "{}",
        "null",
        "",
        " { } ",
        "{}{}",
        "[]",
        r#"{"name":"a"}"#,
        r#"{"name":"with \"quotes\" and \\","count":1}"#,
        r#"{"n\u0061me":"escaped key"}"#,
        r#"{"name":"ü€𝄞, and more than eight bytes\\"}"#,
        r#"{"name":null,"count":null}"#,
        r#"{"name":5}"#,
        r#"{"count":2147483648}"#,
        r#"{"count":-3 , "skipped":[{"a":"}]\"{"},[],"x\\"],"name":"after"}"#,
        r#"{"skipped":{"a":{"b":[[[]]]}},"name":"after"}"#,
        r#"{"skipped":-1.5e3,"other":true,"third":null,"name":"after"}"#,
        r#"{"list":[{"key":"a"},{"key":"b","more":[1,2]}]}"#,
        r#"{"list":[{"more":1}]}"#,
        r#"{"list":[{"key":"a"},]}"#,
        r#"{"list":[,{"key":"a"}]}"#,
        r#"{"list":{"key":"a"}}"#,
        r#"{"phase":"Running"}"#,
        r#"{"phase":{"Failed":"why"}}"#,
        r#"{"phase":"Unknown"}"#,
        r#"{"byNumber":{"1":true,"22":false}}"#,
        r#"{"byNumber":{"x":true}}"#,
        r#"{"pair":[1,2.5]}"#,
        r#"{"pair":[1]}"#,
        r#"{"pair":[1,2,3]}"#,
        r#"{"whole":{"a":[1,"b",{"c":1.5}],"d":18446744073709551615}}"#,
        r#"{"wrapped":"text"}"#,
        r#"{"name":"a","name":"b"}"#,
        r#"{"name":"a" "count":1}"#,
        r#"{"name" "a"}"#,
        r#"{"name":"a""#,
        r#"{"name":"a"#,
        r#"{"skipped":["#,
        r#"{"skipped":"\"#,
        r#"{"name":"a",}"#,
    ];

    #[test]
    fn documents_are_read_as_serde_json_reads_them() {
        fn assert_read_like_serde_json<'a, T: Deserialize<'a> + fmt::Debug + PartialEq>(text: &'a str) {
            let expected = serde_json::from_str::<T>(text).map_err(|error| error.to_string());
            let actual = from_json::<T>(text).map_err(|error| error.to_string());
            assert_eq!(actual, expected, "{text}");
        }
        for text in DOCUMENTS {
            assert_read_like_serde_json::<ReaderView>(text);
            assert_read_like_serde_json::<Value>(text);
            assert_read_like_serde_json::<Option<BTreeMap<String, Value>>>(text);
            let raw_text = |raw: RawText<'_>| raw.whole.map(ToString::to_string);
            // Documents that `serde_json` refuses are not compared. The reader of this crate may accept some of them,
            // because it skips values that are not needed, and does not notice mistakes in them.
            if let Ok(expected) = serde_json::from_str(text).map(raw_text) {
                assert_eq!(from_json(text).map(raw_text).ok(), Some(expected), "{text}");
            }
        }
    }

    #[test]
    fn common_documents_need_no_second_parser() {
        for text in [
            r#" { "name": "a", "skipped": ["}", {"a": "\""}], "count": 1 } "#,
            r#"{"name":"with a \"quote\"","list":[{"key":"a","more":[1.5]}],"phase":{"Failed":"why"}}"#,
            r#"{"pair":[1,2.5],"whole":{"a":[null,true]},"wrapped":"text"}"#,
        ] {
            assert!(read_fields::<ReaderView>(text).is_ok(), "{text}");
            assert!(read_fields::<RawText>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn only_values_that_are_read_have_a_depth_limit() {
        #[derive(Debug, Deserialize)]
        struct ReaderNode {
            #[serde(rename = "n")]
            #[allow(dead_code, reason = "only its depth matters")]
            next: Option<Box<ReaderNode>>,
        }
        let nested_document = |levels| format!("{}{}", r#"{"n":"#.repeat(levels) + "{}", "}".repeat(levels));
        assert!(from_json::<ReaderNode>(&nested_document(100)).is_ok());
        assert!(from_json::<ReaderNode>(&nested_document(200)).is_err());
        let skipped = format!(r#"{{"skipped":{},"name":"a"}}"#, nested_document(100_000));
        let view: ReaderView = from_json(&skipped).expect("nothing deep is read");
        assert_eq!(view.name.as_deref(), Some("a"));
    }

    #[test]
    fn the_end_of_a_string_is_found_at_each_position() {
        for length in 0..40 {
            // These bytes are easily confused with a quote, which is 0x22: 0x21 and 0x23 are its neighbours, and 0xa2
            // differs from it only in the highest bit.
            for other in [0x21, 0x23, 0x5b, 0x5d, 0xa2, 0xdc] {
                let mut bytes = vec![other; length];
                assert!(string_end(&bytes, 0).is_err());
                bytes.push(b'"');
                bytes.extend([other; 9]);
                assert_eq!(string_end(&bytes, 0).ok(), Some((length + 1, false)), "{bytes:?}");
                for escape in 0..length.saturating_sub(1) {
                    bytes[escape..escape + 2].copy_from_slice(br#"\""#);
                    assert_eq!(string_end(&bytes, 0).ok(), Some((length + 1, true)), "{bytes:?}");
                    bytes[escape..escape + 2].fill(other);
                }
            }
        }
    }
}
