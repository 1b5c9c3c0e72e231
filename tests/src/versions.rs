use std::fs;

use crate::{Artifacts, Error, guest_names::VERSION};

/// The guest `versioned` in any version: about 170 kB each, which differ only in six digits.
#[derive(Clone, Debug)]
pub struct Versions {
    component: Vec<u8>,
    /// The offset of the version.
    at: usize,
}

const PREFIX: &str = "version-";

impl Versions {
    /// Reads the component.
    pub fn find() -> Result<Self, Error> {
        let path = Artifacts::find()?.component("guest-versioned")?;
        let component = fs::read(&path).map_err(Error::io(path.display().to_string()))?;
        let mut places = component
            .windows(VERSION.len())
            .enumerate()
            .filter(|(_, text)| *text == VERSION.as_bytes())
            .map(|(at, _)| at);
        match (places.next(), places.next()) {
            (Some(at), None) => Ok(Self { component, at }),
            _ => Err(Error::Invalid(format!(
                "{}: the text `{VERSION}` does not stand in it once",
                path.display()
            ))),
        }
    }

    /// Returns the version string of the plugin with this number. Numbers have at most six digits.
    pub fn name(number: u32) -> String {
        format!("{PREFIX}{number:06}")
    }

    /// Returns the number of a version string.
    pub fn number(name: &str) -> Option<u32> {
        name.strip_prefix(PREFIX)?.parse().ok()
    }

    /// Returns the bytes of the version with this number.
    pub fn module(&self, number: u32) -> Vec<u8> {
        let mut module = self.component.clone();
        for (byte, new) in module.iter_mut().skip(self.at).zip(Self::name(number).bytes()) {
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
    fn each_version_is_a_module_of_its_own() {
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
