use std::fs;

use crate::{Artifacts, Error, guest_names::VERSION};

/// Builds of the test guest `versioned`. They differ only in the six digits of their version. Each has about 170 kB.
#[derive(Clone, Debug)]
pub struct Versions {
    component: Vec<u8>,
    /// The position of the version in the bytes of the component.
    offset: usize,
}

const PREFIX: &str = "version-";

impl Versions {
    pub fn find() -> Result<Self, Error> {
        let path = Artifacts::find()?.component("guest-versioned")?;
        let component = fs::read(&path).map_err(Error::io(path.display().to_string()))?;
        let mut offsets = component
            .windows(VERSION.len())
            .enumerate()
            .filter(|(_, text)| *text == VERSION.as_bytes())
            .map(|(offset, _)| offset);
        match (offsets.next(), offsets.next()) {
            (Some(offset), None) => Ok(Self { component, offset }),
            _ => Err(Error::Invalid(format!(
                "{}: the text `{VERSION}` does not stand in it once",
                path.display()
            ))),
        }
    }

    /// Returns the text of the version with this number. The number has at most six digits.
    pub fn name(number: u32) -> String {
        format!("{PREFIX}{number:06}")
    }

    /// Returns the number of a version from its text, or `None` if the text is not a version.
    pub fn number(name: &str) -> Option<u32> {
        name.strip_prefix(PREFIX)?.parse().ok()
    }

    pub fn module(&self, number: u32) -> Vec<u8> {
        let mut module = self.component.clone();
        for (byte, new) in module.iter_mut().skip(self.offset).zip(Self::name(number).bytes()) {
            *byte = new;
        }
        module
    }

    pub fn size(&self) -> usize {
        self.component.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_two_versions_differ_only_in_their_six_digits() {
        let versions = Versions::find().unwrap();
        let (zero, one) = (versions.module(0), versions.module(123_456));
        assert_eq!((zero.len(), one.len()), (versions.size(), versions.size()));
        assert_eq!(zero, versions.component);
        let different = zero.iter().zip(&one).filter(|(zero, one)| zero != one).count();
        assert_eq!(different, 6);
        assert_eq!(Versions::number(&Versions::name(123_456)), Some(123_456));
        assert_eq!(Versions::number("1.0"), None);
    }
}
