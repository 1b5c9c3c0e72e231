//! Defines the fields on the path from an object to its containers. All other fields are skipped.

use std::fmt;

use jsonptr::{Pointer, PointerBuf};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::{Misspelt, container::RawPart};
use crate::Text;

/// The parser rejects duplicate keys and records misspelt ones, which `derive(Deserialize)` cannot do.
macro_rules! shape {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $key:literal => $field_vis:vis $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        $vis struct $name<'a> {
            $($(#[$field_doc])* $field_vis $field: Option<$type>,)*
            misspelt: Option<(Text<'a>, &'static str)>,
        }

        impl<'a> $name<'a> {
            /// Returns the misspelt key of this object, without looking at nested objects.
            #[allow(dead_code, reason = "only some shapes use it")]
            pub(super) fn misspelt_here(&self, at: &Pointer) -> Option<Misspelt> {
                self.misspelt.as_ref().map(|(key, expected)| Misspelt {
                    path: at.with_trailing_token(key.as_str()),
                    expected,
                })
            }
        }

        impl<'de> Deserialize<'de> for $name<'de> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;

                impl<'de> Visitor<'de> for Fields {
                    type Value = $name<'de>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                        let mut shape = $name::default();
                        while let Some(key) = map.next_key::<Text<'de>>()? {
                            match key.as_str() {
                                $($key => {
                                    if shape.$field.is_some() {
                                        return Err(M::Error::duplicate_field($key));
                                    }
                                    shape.$field = map.next_value()?;
                                })*
                                other => {
                                    if let Some(expected) = [$($key),*].into_iter().find(|key| folds_to(other, key)) {
                                        shape.misspelt = Some((key, expected));
                                    }
                                    map.next_value::<IgnoredAny>()?;
                                }
                            }
                        }
                        Ok(shape)
                    }
                }

                deserializer.deserialize_map(Fields)
            }
        }
    };
}

shape! {
    /// A Pod. It contains no pod template: its own metadata and spec take the place of those of a template.
    pub(super) struct ShapePod {
        "metadata" => pub(super) metadata: ShapeMetadata<'a>,
        "spec" => pub(super) spec: PodSpec<'a>,
    }
}

shape! {
    /// An object that is not a Pod, but contains a pod template.
    pub(super) struct ShapeObject {
        "metadata" => pub(super) metadata: ShapeMetadata<'a>,
        "spec" => pub(super) spec: ShapeSpec<'a>,
        "template" => pub(super) template: ShapeTemplate<'a>,
    }
}

shape! {
    pub(super) struct ShapeSpec {
        "template" => pub(super) template: ShapeTemplate<'a>,
        "jobTemplate" => pub(super) job_template: JobTemplate<'a>,
    }
}

shape! {
    pub(super) struct JobTemplate {
        "spec" => pub(super) spec: JobSpec<'a>,
    }
}

shape! {
    pub(super) struct JobSpec {
        "template" => pub(super) template: ShapeTemplate<'a>,
    }
}

shape! {
    pub(super) struct ShapeTemplate {
        "metadata" => pub(super) metadata: ShapeMetadata<'a>,
        "spec" => pub(super) spec: PodSpec<'a>,
    }
}

shape! {
    pub(super) struct ShapeMetadata {
        "annotations" => pub(super) annotations: TextMap<'a>,
        "labels" => pub(super) labels: TextMap<'a>,
    }
}

shape! {
    pub(super) struct PodSpec {
        "containers" => pub(super) containers: Vec<Container<'a>>,
        "initContainers" => pub(super) init_containers: Vec<Container<'a>>,
        "ephemeralContainers" => pub(super) ephemeral_containers: Vec<Container<'a>>,
        "volumes" => pub(super) volumes: Vec<Volume<'a>>,
        "imagePullSecrets" => pub(super) image_pull_secrets: Vec<ImagePullSecret<'a>>,
    }
}

shape! {
    /// A container of a Pod: an ordinary container, an init container or an ephemeral container.
    pub struct Container {
        /// The name of the container. A container of BCS may have none.
        "name" => pub name: Text<'a>,
        /// The reference of the container's image, unparsed.
        "image" => pub image: Text<'a>,
        "resources" => pub(super) resources: RawPart<'a>,
        "ports" => pub(super) ports: RawPart<'a>,
        "env" => pub(super) env: RawPart<'a>,
        "securityContext" => pub(super) security_context: RawPart<'a>,
        "livenessProbe" => pub(super) liveness_probe: RawPart<'a>,
        "readinessProbe" => pub(super) readiness_probe: RawPart<'a>,
        "startupProbe" => pub(super) startup_probe: RawPart<'a>,
    }
}

shape! {
    /// A volume of a Pod.
    pub struct Volume {
        /// The name of the volume.
        "name" => pub name: Text<'a>,
        /// The image that the volume mounts, if it is an image volume.
        "image" => image: ImageSource<'a>,
    }
}

shape! {
    /// A secret with which the images of a Pod are pulled.
    pub struct ImagePullSecret {
        /// The name of the Secret.
        "name" => pub name: Text<'a>,
    }
}

shape! {
    struct ImageSource {
        "reference" => reference: Text<'a>,
    }
}

impl Volume<'_> {
    /// Returns the reference of the image that the volume mounts, if it is an image volume.
    pub fn image_reference(&self) -> Option<&str> {
        self.image.as_ref()?.reference.as_deref()
    }
}

impl ShapeObject<'_> {
    pub(super) fn misspelt(&self) -> Option<Misspelt> {
        let root = PointerBuf::new();
        self.misspelt_here(&root).or_else(|| {
            let spec = self.spec.as_ref()?;
            let path = root.with_trailing_token("spec");
            spec.misspelt_here(&path).or_else(|| {
                spec.template
                    .as_ref()?
                    .misspelt_here(&path.with_trailing_token("template"))
            })
        })
    }
}

impl PodSpec<'_> {
    pub(super) fn misspelt(&self, at: &Pointer) -> Option<Misspelt> {
        let lists = [
            ("containers", &self.containers),
            ("initContainers", &self.init_containers),
            ("ephemeralContainers", &self.ephemeral_containers),
        ];
        self.misspelt_here(at).or_else(|| {
            lists.iter().find_map(|(list, containers)| {
                containers
                    .iter()
                    .flatten()
                    .enumerate()
                    .find(|(_, container)| container.misspelt.is_some())
                    .and_then(|(index, container)| {
                        container.misspelt_here(&at.with_trailing_token(*list).with_trailing_token(index))
                    })
            })
        })
    }
}

/// Annotations or labels, in the order of the object. Lookups are linear, because there are few entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextMap<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'a> TextMap<'a> {
    /// Returns the value of a key. If the key occurs several times, the last value counts.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(other, _)| other == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns whether the map contains this key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns an iterator over the keys and values of the map.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl<'de> TextMap<'de> {
    pub(super) fn with_values<D: Deserializer<'de>, V: Deserialize<'de>>(
        deserializer: D,
        text: fn(V) -> Text<'de>,
    ) -> Result<Self, D::Error> {
        struct ShapeEntries<'de, V>(fn(V) -> Text<'de>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for ShapeEntries<'de, V> {
            type Value = TextMap<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object whose values are strings")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key()? {
                    // A value that is `null` becomes an empty string, as control planes treat it.
                    let value = map.next_value::<Option<V>>()?;
                    entries.push((key, value.map(self.0).unwrap_or_default()));
                }
                Ok(TextMap(entries))
            }
        }

        deserializer.deserialize_map(ShapeEntries(text))
    }
}

impl<'de> Deserialize<'de> for TextMap<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::with_values(deserializer, |text: Text<'de>| text)
    }
}

/// Returns whether Go's `encoding/json` takes `key` for the field `name`, which is ASCII. Go ignores the case of keys.
fn folds_to(key: &str, name: &str) -> bool {
    let fold = |character: char| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    // If case is ignored, the letters U+017F and U+212A are equal to `s` and `k`. They have two and three bytes in
    // UTF-8, so `key` may be up to three times as long as `name`.
    key.len() >= name.len()
        && key.len() <= name.len() * 3
        && key
            .chars()
            .map(fold)
            .eq(name.chars().map(|character| character.to_ascii_lowercase()))
}
